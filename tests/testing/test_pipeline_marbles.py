"""Pictures of pipelines: what is read, what is played, and what is said where something else happens."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from agentscope_rx.errors import ScriptEnded, ServerFailed
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.operators import begin_request, call_model
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig, ModelChunk
from agentscope_rx.step import Step
from agentscope_rx.testing import MarbleModel, Picture, a_step, assert_pipeline, pictures_in
from agentscope_rx.testing.marbles import MarbleError, read_marks
from agentscope_rx.testing.pictures import drawn
from tests.virtual import virtual

ASKING = call_model(execution=ExecutionConfig(max_attempts=1))


@effect_operator
async def telling(step: Step) -> Step:
    """Says so when it begins and when it ends."""
    step.emit(Custom(name="begun", value={}))
    await asyncio.sleep(2)
    step.emit(Custom(name="ended", value={}))
    return replace(step, number=step.number + 1)


TOLD = """
    -s-----|
    telling
    ---t---|     t.number is one more
    -B-E         events: B begun, E ended
"""


def one_more(step: Step) -> bool:
    return step.number == 1


async def failure(operator: Operator, picture: str, **steps: Step) -> list[str]:
    """The lines that say what is not as it is drawn."""
    with pytest.raises(AssertionError) as caught:
        await assert_pipeline(operator, picture, {**steps, "t": one_more})
    return str(caught.value).splitlines()


@virtual
async def test_what_is_drawn_happens() -> None:
    """Steps, events and their seconds; a picture may be played any number of times."""
    for _ in range(2):
        await assert_pipeline(telling, TOLD, {"s": a_step(), "t": one_more})
        await assert_pipeline(Pipeline.of("all", telling), TOLD, {"s": a_step(), "t": one_more})


@virtual
async def test_steps_go_through_one_after_the_other() -> None:
    """Letters are told apart by the data of their steps; what is not changed is drawn as it came."""
    picture = """
        -ab------|
        delay
        ----a--b-|
    """
    await assert_pipeline(Pipeline.of("step", ops.delay(3)), picture, {"a": a_step(number=1), "b": a_step(number=2)})


@virtual
async def test_another_second_is_shown() -> None:
    """Both rows below each other, and the first moment at which they differ."""
    said = await failure(telling, TOLD.replace("---t---|", "--t----|").replace("-B-E", "-BE-"), s=a_step())
    assert said == [
        "telling is not as it is drawn",
        "  steps   drawn  --t----|",
        "          came   ---t---|",
        "          t at 2 s is drawn, t at 3 s came",
        "  events  drawn  -BE-",
        "          came   -B-E",
        "          E at 2 s is drawn, E at 3 s came",
    ]


@virtual
async def test_what_no_letter_stands_for_is_told() -> None:
    """An event by its outline, a step by how it differs, an error as it is."""
    said = await failure(telling, TOLD.replace(", E ended", "").replace("-B-E", "-B"), s=a_step())
    assert "          ? at 3 s came, and is not drawn" in said
    assert said[-1] == "  ? is an event that no letter stands for: CUSTOM name='ended' value={}"
    said = await failure(telling, TOLD, s=a_step(number=7))
    assert said[-1] == "  ? is a step that is none of s, t; beside s it has another number"

    @effect_operator
    def failing(step: Step) -> Step:
        raise LookupError("gone")

    said = await failure(failing, "-s-|\nfailing\n-t-|", s=a_step())
    assert said[-1].startswith("  ? is the error LookupError('gone'); expected was ")
    await assert_pipeline(failing, "-s-|\nfailing\n-#", {"s": a_step()}, error=LookupError)
    await assert_pipeline(failing, "-s-|\nfailing\n-#", {"s": a_step()}, error=LookupError("gone"))
    for other in (LookupError("lost"), KeyError("gone"), KeyError):
        with pytest.raises(AssertionError, match="gone"):
            await assert_pipeline(failing, "-s-|\nfailing\n-#", {"s": a_step()}, error=other)


@virtual
async def test_without_a_row_of_events_none_may_come() -> None:
    """What is not drawn must not happen; what is drawn must."""
    said = await failure(telling, "-s-----|\ntelling\n---t---|", s=a_step())
    assert said[1:4] == [
        "  events  drawn  nothing",
        "          came   -?-?",
        "          ? at 1 s came, and is not drawn",
    ]
    said = await failure(telling, TOLD.replace("-B-E", "-B-E-E"), s=a_step())
    assert said[-1] == "          E at 5 s is drawn, and did not come"


@virtual
async def test_a_row_without_an_end_is_watched_for_as_long_as_it_is() -> None:
    """What comes later is not drawn."""
    await assert_pipeline(telling, "-s\ntelling\n---t\n-B-E   events: B begun, E ended", {"s": a_step(), "t": one_more})
    await assert_pipeline(telling, "-s\ntelling\n--\n-B   events: B begun", {"s": a_step(), "t": one_more})


@virtual
async def test_a_column_is_as_many_seconds_as_wanted() -> None:
    """Hours, or tenths of a second."""
    for seconds, waits in ((0.5, 4), (1.0, 2), (0.1, 20)):
        row = "-" * (1 + waits)
        picture = Picture.of(f"-s-|\ntelling\n{row}(t|)\n-B{row[2:]}E   events: B begun, E ended", seconds=seconds)
        await assert_pipeline(telling, picture, {"s": a_step(), "t": one_more})


@virtual
async def test_the_model_speaks_as_it_is_drawn() -> None:
    """Pieces in their columns; an answer ends with its end or with an error."""
    picture = """
        --s---------------|
        call_model
        ---------t--------|
        -----hi--|          model
    """
    with pytest.raises(AssertionError) as caught:
        await assert_pipeline(ASKING, picture, {"s": a_step(), "t": lambda step: step.reply is not None})
    assert "came   S at 2" not in str(caught.value)  # no legend names it
    assert "h at 5, i at 6" in str(caught.value)
    with pytest.raises(AssertionError, match="model   drawn"):
        await assert_pipeline(ops.delay(1), "-s-|\ndelay\n--s|\n--h|   model", {"s": a_step()})
    with pytest.raises(AssertionError, match="asked once more than call_model"):
        await assert_pipeline(Pipeline.of("twice", ASKING, replace(ASKING, name="again")), picture, {"s": a_step()})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there are 0"),
        ("-s|\nname\n-t|\n\n-s|\nname\n-t|", "there are 2"),
        ("-s|\nname\n-t|\n-a|   tools", "model, events"),
        ("-s|\nname\n-t|\n-a|", "model, events"),
        ("-s|\nname\n-t|\n-a   events\n-a   events", "once"),
        ("-s|\nname\n-t|\nand so on", "no row"),
        ("-s|\nname\n-t|\n-a|   events", "no end of their own"),
        ("-s|\nname\n-t|\n-a   events: BEGUN begun", "a letter and the type"),
        ("-s|-\nname\n-t|x", "nothing comes after the end"),
        ("-s|\nname\n-(t|", "brackets"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    """With what is wrong in it."""
    with pytest.raises(ValueError, match=why):
        Picture.of(text)


def test_pictures_are_found_in_a_docstring() -> None:
    """Prose, lists, options and examples are none; words may go on in the next line; the title has the case."""
    first, second = pictures_in(
        """Do it well-known.

            --s--|
            do        twice, in a row
            --t--|    t is
                      done
            -B        events: B begun,
                      E ended

        Prose:

        - an item
        name
        - another item

        --s--|
        do
        --t--|
        """
    )
    assert (first.title, first.words, first.legend) == (
        "do, twice, in a row",
        "t is done",
        {"B": "begun", "E": "ended"},
    )
    assert (second.title, second.case, second.events) == ("do", "", "")


@virtual
async def test_what_goes_in_must_be_a_step_that_keeps_its_events() -> None:
    """A letter without a step is named, and so is one whose run tells nobody."""
    with pytest.raises(LookupError, match="'s' goes into telling"):
        await assert_pipeline(telling, TOLD, {"t": one_more})
    deaf = a_step()
    with pytest.raises(TypeError, match="'s' must have a run"):
        await assert_pipeline(telling, TOLD, {"s": replace(deaf, run=deaf.run.aside()), "t": one_more})


@virtual
async def test_a_marble_model_answers_an_agent() -> None:
    """Each diagram is an answer, from when it is asked; letters may be chunks, or errors that end it."""
    model = MarbleModel("--o", "-a-(b|)", "-c|", chunks={"o": ServerFailed("overloaded", status=503)})
    builder = ReActAgent.builder(name="a", model=model, execution=ExecutionConfig(initial_backoff=0.0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await builder.call("go")).text == "ab"
    assert loop.time() - began == pytest.approx(5.0)
    assert len(model.requests) == 2
    pieces = [chunk async for chunk in model.stream(model.requests[0])]
    assert pieces == [ModelChunk(text="c"), ModelChunk(finish_reason="stop")]
    with pytest.raises(ScriptEnded, match="request 4"):
        await anext(model.stream(model.requests[0]))
    with pytest.raises(MarbleError):
        await anext(MarbleModel("#").stream(model.requests[0]))
    silent = MarbleModel("-a").stream(model.requests[0])
    assert await anext(silent) == ModelChunk(text="a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(silent), 3_600)
    whole = MarbleModel("-e|", chunks={"e": ModelChunk(text="all", finish_reason="length")})
    assert [chunk.finish_reason async for chunk in whole.stream(model.requests[0])] == ["length"]


@virtual
async def test_several_operators_are_one_picture() -> None:
    """A pipeline is drawn like an operator, with the events of all."""
    picture = """
        --s------------|
        request
        -------t-------|
        -----(h|)           model
        --S--(bheE)         events: S MODEL_CALL_START, b TEXT_BLOCK_START, e TEXT_BLOCK_END, E MODEL_CALL_END
    """
    request = Pipeline.of("request", begin_request(), ASKING, ops.delay(2))
    await assert_pipeline(request, picture, {"s": a_step(), "t": lambda step: step.call_id == "call-2"})


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=6))
def test_a_row_that_is_drawn_is_read_as_what_it_is(marks: list[tuple[int, str]]) -> None:
    """Invariant: where a row can be true to time, reading it gives the marks; else it is in words."""
    marks = sorted(marks, key=lambda each: each[0])
    row = drawn([(float(at), mark) for at, mark in marks], "--")
    assert " at " in row or read_marks(row) == marks
