"""What a model is told when a path is not what its tool needs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from agentscope_rx.workspace.paths import shown


@contextmanager
def explained(path: str, *, directory: bool = False) -> Generator[None]:
    """Say what to do instead where the system only says what is wrong.

    Args:
        path: What the model asked for.
        directory: Whether the tool needs a directory there. Default False.

    Raises:
        FileNotFoundError: There is nothing.
        IsADirectoryError: There is a directory.
        NotADirectoryError: There is a file, or one above.
        PermissionError: This program has no right to it.

    Examples:
        >>> with explained("a.txt"):
        ...     await workspace.read("a.txt")
        FileNotFoundError: there is no file or directory 'a.txt': look around with list_files
    """
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file or directory {shown(path)}: look around with list_files") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{shown(path)} is a directory: look into it with list_files") from None
    except NotADirectoryError:
        if directory:
            raise NotADirectoryError(f"{shown(path)} is no directory: read it with read_file") from None
        raise NotADirectoryError(f"something above {shown(path)} is a file, so nothing can be below it") from None
    except PermissionError:
        why = "this program has no right to do that there: go on without it, or say what is missing"
        raise PermissionError(f"the system refuses {shown(path)}: {why}") from None
