"""Look through many files of a disk for a text, in one go and in one thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from agentscope_rx.workspace.containment import OPEN_FILE, open_place
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.text import binary_type

# Larger ones cost a file of a few lines more than reading it does.
_PIECE_BYTES = 64 * 1024


def scan_files(root: Path, paths: Sequence[WorkspacePath], text: bytes, stop: threading.Event) -> set[WorkspacePath]:
    """Find the files that hold a text or are binary; also those that cannot be read, so that their reader is told.

    Args:
        root: The real path of the root.
        paths: The files; those of one directory together are opened without another walk.
        text: What they may hold.
        stop: Set when nobody waits for the answer any more.

    Examples:
        >>> scan_files(root, [resolve_path("a"), resolve_path("b")], b"needle", threading.Event())
        {WorkspacePath(parts=('b',))}
    """
    found: set[WorkspacePath] = set()
    for _, group in groupby(paths, key=lambda path: path.parent):
        files = list(group)
        try:
            with open_place(root, files[0]) as place:
                for path in files:
                    if stop.is_set():
                        return found
                    if _is_worth_reading(path.name, place.directory, text):
                        found.add(path)
        except FileNotFoundError:
            continue
        except OSError:
            found.update(files)
    return found


def _is_worth_reading(name: str, directory: int, text: bytes) -> bool:
    try:
        file = os.open(name, OPEN_FILE, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        piece = os.read(file, _PIECE_BYTES)
        if text in piece or binary_type(piece) is not None:
            return True
        while len(piece) >= _PIECE_BYTES:
            kept = piece[-len(text) :]
            piece = os.read(file, _PIECE_BYTES)
            if text in kept + piece:
                return True
    except OSError:
        return True
    finally:
        os.close(file)
    return False
