"""Watches folders with watchdog, and calls back from its own threads when something in them changes.

It takes two threads (on Linux also three descriptors), and one more thread for each watched folder that lies
outside all others. Each folder within a tree costs the kernel a watch, and this process nothing.

On Linux, file events bypass watchdog's threads: those would take longer than the rest of a sync, and reading
from the kernel in order tells when all events have arrived.
"""

import errno
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

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

from composable_memory_adapters.builtin.sync.watch_scope import (
    Mounts,
    WatchedFolder,
    WatchReport,
    WatchScope,
    mounts_of,
)

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

# No events for reading, since a sync reads; none for folders whose entries change: the entries have events.
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
HEARING_S = 0.1
PAUSE_S = 0.0005
OnChange = Callable[[str | None], None]

# Errors are handled here; without this, watchdog writes to stderr if logging is not set up.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Watcher:
    """Watches a scope that may change; its methods block, so call them from a thread.

    `on_change` is called from the watcher's threads for every change within the scope, with the path
    concerned, or None if events were lost.
    """

    def __init__(self, survey: Callable[[], WatchScope], on_change: OnChange) -> None:
        self._survey = survey
        self._filter = _EventFilter(on_change)
        self._observer: BaseObserver | None = None
        self._watches: dict[WatchedFolder, ObservedWatch] = {}
        self._guard = threading.Lock()
        self._is_stopped = False

    def update(self) -> WatchReport:
        """Watch the folders that exist now; one that was replaced is watched again."""
        with self._guard:
            if self._is_stopped:
                return WatchReport()
            self._filter.is_outdated = False
            self._filter.change_scope(scope := self._survey(), mounts_of(scope))
            try:
                observer = self._running_observer()
            except (OSError, RuntimeError) as error:  # out of descriptors or threads
                return WatchReport(problem=_explain(error))
            self._leave(observer, scope)
            return self._enter(observer, scope)

    @property
    def is_outdated(self) -> bool:
        """Return whether other folders may need to be watched since the last update."""
        return self._filter.is_outdated

    @property
    def misses_nothing(self) -> bool:
        """Return whether the system reports every change in the folders, and when all were reported."""
        return self._filter.mounts.are_local and sys.platform == "linux"

    def has_heard_all(self) -> bool:
        """Return whether every change up to now was passed to `on_change`; waits briefly for events."""
        # Check the folders first: they are outdated before the event that says so has been handled.
        if self._survey() != self._filter.scope:
            self._filter.is_outdated = True
        deadline = time.monotonic() + HEARING_S
        while not _has_heard_all(self._observer):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_S)
        return not self.is_outdated

    def stop(self) -> None:
        """Stop watching, and wait for the threads to end; it cannot be restarted."""
        with self._guard:
            self._is_stopped = True
            self._stop_observer()

    def _running_observer(self) -> BaseObserver:
        """Return the observer, replacing one that has lost a thread."""
        if self._observer is not None and not self._observer.is_alive():
            self._stop_observer()
        if self._observer is None:
            _make_sure_of_descriptors()
            observer = _open_observer(self._filter)
            observer.start()
            self._observer = observer
        return self._observer

    def _leave(self, observer: BaseObserver, scope: WatchScope) -> None:
        """Stop watching folders that are gone, were replaced, or have lost their watch."""
        lost = self._filter.take_lost()
        dead = {emitter.watch for emitter in observer.emitters if not emitter.is_alive()}
        for folder, watch in list(self._watches.items()):
            if folder not in scope.folders or folder.path in lost or watch in dead:
                observer.unschedule(watch)
                del self._watches[folder]

    def _enter(self, observer: BaseObserver, scope: WatchScope) -> WatchReport:
        is_new, problem = False, self._filter.refusal
        for folder in scope.folders:
            if folder in self._watches:
                continue
            try:
                watch = observer.schedule(
                    self._filter, folder.path, recursive=folder.recursive, event_filter=EVENTS
                )
            except FileNotFoundError:
                continue  # it has just been deleted
            except (OSError, RuntimeError) as error:
                problem = _explain(error)
            else:
                self._watches[folder] = watch
                is_new = True
        problem = problem or self._filter.refusal
        folders = tuple(sorted(folder.path for folder in self._watches))
        return WatchReport(folders=folders, is_new=is_new, problem=problem)

    def _stop_observer(self) -> None:
        observer, self._observer = self._observer, None
        self._watches.clear()
        self._filter.refusal = None
        if observer is not None:
            observer.stop()
            observer.join(STOP_S)


class _EventFilter(FileSystemEventHandler):
    """Receives events in watchdog's threads, and calls `on_change` for those within the scope."""

    def __init__(self, on_change: OnChange) -> None:
        self.scope = WatchScope(names={})
        self.mounts = Mounts()
        self.refusal: str | None = None
        """Why some folder inside a tree is not watched."""
        self.is_outdated = False
        """Whether a folder or a `.gitignore` was created, changed or deleted."""
        self.on_change = on_change
        self._lost: set[str] = set()

    def change_scope(self, scope: WatchScope, mounts: Mounts) -> None:
        """Switch to another scope, or to the current mounts of the same one."""
        if scope.rules != self.scope.rules:
            self._lost.add(scope.root)  # its set of watched folders has changed
        if mounts != self.mounts:
            self._lost.update(folder.path for folder in scope.folders)
        self.scope, self.mounts = scope, mounts

    def dispatch(self, event: FileSystemEvent) -> None:
        """Handle an event from watchdog."""
        goes_out = type(event) in GOES_OUT
        source, target = os.fsdecode(event.src_path), os.fsdecode(event.dest_path)
        # Not every system tells a deleted folder from a file: a name without a dot may be a folder's.
        is_folder = event.is_directory or (goes_out and "." not in source.rpartition(os.sep)[2])
        self.note(source, is_folder=is_folder, goes_out=goes_out)
        if target:
            self.note(target, is_folder=is_folder)

    def note(self, path: str, *, is_folder: bool = False, goes_out: bool = False) -> None:
        """Handle a change at a path; `goes_out` means that it no longer exists."""
        if goes_out and any(path == folder.path for folder in self.scope.folders):
            self._lost.add(path)
        if is_gitignore := self.scope.is_gitignore(path):
            self._lost.add(self.scope.root)  # its set of watched folders may have changed
        if is_folder or is_gitignore:  # only ever set here: another thread may have set it for lost events
            self.is_outdated = True
        if self.scope.concerns(path, is_folder=is_folder):
            self.on_change(path)

    def lose_all(self) -> None:
        """Make the next update watch all folders again."""
        self._lost.update(folder.path for folder in self.scope.folders)
        self.is_outdated = True

    def take_lost(self) -> set[str]:
        """Return the watched folders to watch again: those deleted, moved or changed since the last call."""
        lost = set()
        while self._lost:
            lost.add(self._lost.pop())
        return lost


if sys.platform == "linux":

    class _Inotify(InotifyFD):
        """Reads the kernel's events; unlike watchdog's, it reports overflows and leaves folders out."""

        def __init__(self, filter_: _EventFilter) -> None:
            super().__init__()
            self._filter = filter_
            self._folders: dict[WatchDescriptor, str] = {}
            self._is_at_work = True

        @property
        def has_heard_all(self) -> bool:
            """Return whether everything that the kernel has reported so far has been handled."""
            unread = select.poll()
            unread.register(self._inotify_fd, select.POLLIN)
            # In this order: it is marked busy before it reads.
            return not unread.poll(0) and not self._is_at_work

        def _check_inotify_fd(self) -> bool:
            self._is_at_work = False
            self._is_at_work = super()._check_inotify_fd()  # set before it reads
            return self._is_at_work

        def add_callback(
            self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
        ) -> WatchDescriptor:
            """Watch one folder; inside a tree, watchdog skips folders for which this raises."""
            if not self._filter.scope.is_watched(os.fsdecode(path)):
                raise OSError(errno.ECANCELED, "left out", path)
            try:
                watch = super().add_callback(path, mask, callback, id_)
            except OSError as error:
                if error.errno in LIMITS:
                    self._filter.refusal = _explain(error)
                raise
            if watch < 0:  # watchdog raises nothing if a folder is not readable
                self._filter.refusal = _explain(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
            self._folders[watch] = os.fsdecode(path)
            return watch

        def _add_callback(
            self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
        ) -> WatchDescriptor:
            # A folder created while its parent is being added is seen twice, and watchdog would warn.
            watch = self._get_or_create_watch(path, mask)
            watch.callbacks[id_] = callback
            return watch.wd

        def handle_event(self, event: InotifyEvent) -> None:
            """Handle an event; if the kernel has dropped some, anything may have changed."""
            folder, name = self._folders.get(event.wd), os.fsdecode(event.name)
            path = os.path.join(folder, name) if folder and name else folder  # noqa: PTH118 - path objects are slow
            is_of_file = name and not event.is_directory
            if event.is_moved_from and path in self._folders.values():
                self._filter.lose_all()  # the folders inside it have other paths now
            elif event.is_ignored:
                self._folders.pop(event.wd, None)
            if not is_of_file:
                super().handle_event(event)  # watches new folders, and looks for their contents
            if path is None or event.is_queue_overflow:
                self._filter.is_outdated = True
                self._filter.on_change(None)
            elif not event.is_ignored:
                goes_out = event.is_moved_from or event.is_delete or event.is_delete_self
                self._filter.note(path, is_folder=not is_of_file, goes_out=goes_out)

    class _InotifyObserver(BaseObserver):
        """Watchdog's observer, using our `_Inotify`."""

        def __init__(self, filter_: _EventFilter) -> None:
            self._inotify = _Inotify(filter_)
            super().__init__(InotifyEmitter, inotify_fd=self._inotify)

        @property
        def has_heard_all(self) -> bool:
            """Return whether all events up to now have been handled."""
            return self._inotify.has_heard_all and self.is_alive()

        def on_thread_start(self) -> None:
            self._inotify.start()
            super().on_thread_start()

        def on_thread_stop(self) -> None:
            super().on_thread_stop()
            self._inotify.stop()
            self._inotify.join(STOP_S)

        def is_alive(self) -> bool:
            return super().is_alive() and self._inotify.is_alive()

    def _open_observer(filter_: _EventFilter) -> BaseObserver:
        return _InotifyObserver(filter_)

    def _has_heard_all(observer: BaseObserver | None) -> bool:
        return isinstance(observer, _InotifyObserver) and observer.has_heard_all

else:

    def _open_observer(filter_: _EventFilter) -> BaseObserver:  # noqa: ARG001 - used on Linux only
        return Observer()

    def _has_heard_all(observer: BaseObserver | None) -> bool:  # noqa: ARG001 - events may be in transit
        return False


def _make_sure_of_descriptors() -> None:
    """Raise now if descriptors run out: watchdog leaks the first two if it gets no third."""
    with ExitStack() as stack:
        for end in (end for _ in range(2) for end in os.pipe()):
            stack.callback(os.close, end)


def _explain(error: Exception) -> str:
    advice = LIMITS.get(error.errno or 0) if isinstance(error, OSError) else None
    return advice or f"the folders cannot be watched: {error}"
