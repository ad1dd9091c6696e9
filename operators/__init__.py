"""The operators of a reasoning step, and how to write your own.

which operator do I need?
begin a request with a fresh snapshot          begin_request
add the workspace's rules and material         load_materials
add what context sources give                  load_sources
add the files that the user mentions           attach_files
put prompt, tools and options into it          assemble_request
move large tool results into files             offload_tool_results
leave out what there is no room for            evict_optional_blocks
cut long arguments of old calls                truncate_arguments
leave out the middle of old tool results       prune_tool_results
let older messages give way to a summary       compact_history
move results into files until all fits         offload_to_fit
show the task where the conversation does not  project_task_state
refuse what no provider would take             validate_request
make the proposed history the session's        commit_history
ask the model                                  call_model
run the tools that it calls                    run_tools
say in which form the answer is wanted         offer_output
end with an answer of that form                settle_output
tell what a request holds (a guard)            report_context
have one more try when it is too long (guard)  recover_overflow
ask another model (a guard)                    fallback
ask without a format (a guard)                 without_output_format

how do I write one?
change one text after the other                @text_operator
change this request only                       @view_operator
propose a new working history                  @history_operator
talk to the world                              @effect_operator
"""

from agentscope_rx.draft import RequestDraft as RequestDraft
from agentscope_rx.lifting import Operator as Operator
from agentscope_rx.lifting import StepOperator as StepOperator
from agentscope_rx.lifting import effect_operator as effect_operator
from agentscope_rx.lifting import history_operator as history_operator
from agentscope_rx.lifting import text_operator as text_operator
from agentscope_rx.lifting import view_operator as view_operator
from agentscope_rx.operators._assemble_request import SystemPrompt as SystemPrompt
from agentscope_rx.operators._assemble_request import assemble_request as assemble_request
from agentscope_rx.operators._attach_files import attach_files as attach_files
from agentscope_rx.operators._begin_request import begin_request as begin_request
from agentscope_rx.operators._call_model import ChunkOperator as ChunkOperator
from agentscope_rx.operators._call_model import call_model as call_model
from agentscope_rx.operators._commit_history import commit_history as commit_history
from agentscope_rx.operators._compact_history import compact_history as compact_history
from agentscope_rx.operators._evict_optional_blocks import evict_optional_blocks as evict_optional_blocks
from agentscope_rx.operators._fallback import fallback as fallback
from agentscope_rx.operators._load_materials import load_materials as load_materials
from agentscope_rx.operators._load_sources import load_sources as load_sources
from agentscope_rx.operators._memory_call import MemoryKeeper as MemoryKeeper
from agentscope_rx.operators._offer_output import offer_output as offer_output
from agentscope_rx.operators._offer_output import without_output_format as without_output_format
from agentscope_rx.operators._offload_to_fit import offload_to_fit as offload_to_fit
from agentscope_rx.operators._offload_tool_results import offload_tool_results as offload_tool_results
from agentscope_rx.operators._project_task_state import project_task_state as project_task_state
from agentscope_rx.operators._prune_tool_results import prune_tool_results as prune_tool_results
from agentscope_rx.operators._recover_overflow import recover_overflow as recover_overflow
from agentscope_rx.operators._report_context import report_context as report_context
from agentscope_rx.operators._run_tools import run_tools as run_tools
from agentscope_rx.operators._settle_output import settle_output as settle_output
from agentscope_rx.operators._summary_call import Summariser as Summariser
from agentscope_rx.operators._truncate_arguments import truncate_arguments as truncate_arguments
from agentscope_rx.operators._validate_request import validate_request as validate_request
from agentscope_rx.step import Step as Step
