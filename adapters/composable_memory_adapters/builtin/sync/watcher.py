"""The one door to watchdog: says, from threads of its own, that something in the watched folders has changed.

It takes two threads and, on Linux, three descriptors, and one thread more for each watched folder that lies
in no other. What is in a tree costs the kernel a watch per folder, and this process nothing.
"""

import errno
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, ObservedWatch

from composable_memory_adapters.builtin.sync.watch_scope import WatchedFolder, WatchScope

if sys.platform == "linux":
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import (
        CallbackId,
        InotifyEvent,
        InotifyFD,
        Mask,
        WatchCallback,
        WatchDescriptor,
    )
else:
    from watchdog.observers import Observer

__all__ = ["WatchReport", "Watcher"]

# Reading is no change, and a sync reads; a folder that changes does so by what is in it.
EVENTS: list[type[FileSystemEvent]] = [
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
GOES_OUT = frozenset({FileDeletedEvent, DirDeletedEvent, FileMovedEvent, DirMovedEvent})
LIMITS = {
    errno.ENOSPC: "the system allows no more watches; raise fs.inotify.max_user_watches",
    errno.EMFILE: "the system allows no more watchers; raise fs.inotify.max_user_instances or `ulimit -n`",
}
STOP_S = 5.0

# What watchdog complains of is seen to here; without this it would write to stderr where nobody logs.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What is being watched: the outermost folders, whether any is new, and why something is not watched."""

    folders: tuple[str, ...] = ()
    is_new: bool = False
    problem: str | None = None


class Watcher:
    """Watches a territory that may change; its methods block, so call them from a thread.

    `on_change` is called from threads of the watcher, for every change that concerns the territory.
    """

    def __init__(self, survey: Callable[[], WatchScope], on_change: Callable[[], None]) -> None:
        self._survey = survey
        self._ears = _Ears(on_change)
        self._observer: BaseObserver | None = None
        self._watches: dict[WatchedFolder, ObservedWatch] = {}
        self._guard = threading.Lock()
        self._is_stopped = False

    def keep_up(self) -> WatchReport:
        """Watch the folders that are there now; one that was replaced since is watched anew."""
        with self._guard:
            if self._is_stopped:
                return WatchReport()
            self._ears.territory = territory = self._survey()
            try:
                observer = self._running_observer()
            except (OSError, RuntimeError) as error:  # no descriptor is left, or no thread
                return WatchReport(problem=_explain(error))
            self._leave(observer, territory)
            return self._enter(observer, territory)

    def stop(self) -> None:
        """Stop watching, and wait for the threads to end; it cannot be started again."""
        with self._guard:
            self._is_stopped = True
            self._stop_observer()

    def _running_observer(self) -> BaseObserver:
        """Return the observer; one that has lost a thread is replaced."""
        if self._observer is not None and not self._observer.is_alive():
            self._stop_observer()
        if self._observer is None:
            _make_sure_of_descriptors()
            observer = _open_observer(self._ears)
            observer.start()
            self._observer = observer
        return self._observer

    def _leave(self, observer: BaseObserver, territory: WatchScope) -> None:
        """Give up the folders that are gone, were replaced, or have lost their watch."""
        lost = self._ears.take_lost()
        dead = {emitter.watch for emitter in observer.emitters if not emitter.is_alive()}
        for folder, watch in list(self._watches.items()):
            if folder not in territory.folders or folder.path in lost or watch in dead:
                observer.unschedule(watch)
                del self._watches[folder]

    def _enter(self, observer: BaseObserver, territory: WatchScope) -> WatchReport:
        is_new, problem = False, self._ears.refusal
        for folder in territory.folders:
            if folder in self._watches:
                continue
            try:
                watch = observer.schedule(
                    self._ears, folder.path, recursive=folder.recursive, event_filter=EVENTS
                )
            except FileNotFoundError:
                continue  # it has just gone
            except (OSError, RuntimeError) as error:
                problem = _explain(error)
            else:
                self._watches[folder] = watch
                is_new = True
        problem = problem or self._ears.refusal
        folders = tuple(sorted(folder.path for folder in self._watches))
        return WatchReport(folders=folders, is_new=is_new, problem=problem)

    def _stop_observer(self) -> None:
        observer, self._observer = self._observer, None
        self._watches.clear()
        self._ears.refusal = None
        if observer is not None:
            observer.stop()
            observer.join(STOP_S)


class _Ears(FileSystemEventHandler):
    """Hears what happens, in watchdog's threads, and passes on that something did if it concerns us."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.territory = WatchScope(names={})
        self.refusal: str | None = None
        """Why a folder within a tree is not watched."""
        self.on_change = on_change
        self._lost: set[str] = set()

    def dispatch(self, event: FileSystemEvent) -> None:
        """Look at an event."""
        goes_out = type(event) in GOES_OUT
        source = os.fsdecode(event.src_path)
        if goes_out and any(source == folder.path for folder in self.territory.folders):
            self._lost.add(source)
        # Not every system says what it was that is gone: a name without a dot may have been a folder's.
        is_folder = event.is_directory or (goes_out and "." not in source.rpartition(os.sep)[2])
        if self._concerns(source, is_folder) or self._concerns(os.fsdecode(event.dest_path), is_folder):
            self.on_change()

    def take_lost(self) -> set[str]:
        """Return the watched folders that were deleted or moved since the last call."""
        lost, self._lost = self._lost, set()
        return lost

    def _concerns(self, path: str, is_folder: bool) -> bool:
        return bool(path) and self.territory.concerns(path, is_folder=is_folder)


if sys.platform == "linux":

    class _Inotify(InotifyFD):
        """The kernel's events; says more of them than watchdog passes on, and leaves folders out."""

        def __init__(self, ears: _Ears) -> None:
            super().__init__()
            self._ears = ears

        def add_callback(
            self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
        ) -> WatchDescriptor:
            """Watch one folder; watchdog passes over those within a tree for which this raises."""
            if not self._ears.territory.is_watched(os.fsdecode(path)):
                raise OSError(errno.ECANCELED, "left out", path)
            try:
                return super().add_callback(path, mask, callback, id_)
            except OSError as error:
                if error.errno in LIMITS:
                    self._ears.refusal = _explain(error)
                raise

        def handle_event(self, event: InotifyEvent) -> None:
            """Take note of an event; where the kernel has lost some, anything may have changed."""
            super().handle_event(event)
            if event.is_queue_overflow:
                self._ears.on_change()

    class _InotifyObserver(BaseObserver):
        """Like watchdog's own, with our eyes on the kernel."""

        def __init__(self, ears: _Ears) -> None:
            self._inotify = _Inotify(ears)
            super().__init__(InotifyEmitter, inotify_fd=self._inotify)

        def on_thread_start(self) -> None:
            self._inotify.start()
            super().on_thread_start()

        def on_thread_stop(self) -> None:
            super().on_thread_stop()
            self._inotify.stop()
            self._inotify.join(STOP_S)

        def is_alive(self) -> bool:
            return super().is_alive() and self._inotify.is_alive()

    def _open_observer(ears: _Ears) -> BaseObserver:
        return _InotifyObserver(ears)

else:

    def _open_observer(ears: _Ears) -> BaseObserver:  # noqa: ARG001 - only the kernel of Linux says more
        return Observer()


def _make_sure_of_descriptors() -> None:
    """Fail now if there are too few: watchdog loses the first of its three if it gets no third."""
    with ExitStack() as stack:
        for end in (end for _ in range(2) for end in os.pipe()):
            stack.callback(os.close, end)


def _explain(error: Exception) -> str:
    advice = LIMITS.get(error.errno or 0) if isinstance(error, OSError) else None
    return advice or f"the folders cannot be watched: {error}"
