"""Experiments in the feedback store, and their outcomes for single queries."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import cache, partial

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome, Side
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.entries import Entries
from composable_memory_feedback.store.kinds import EXPERIMENTS, OUTCOMES, key_text, plain_text


class ExperimentRows(Database):
    """Experiments and their outcomes."""

    def start_experiment(self, record: Experiment) -> None:
        """Record a new experiment.

        Raises:
            FeedbackError: There is one with this id, or another one is running in this memory.
        """
        with self.writing() as entries:
            if EXPERIMENTS.find(entries, record.id) is not None:
                advice = "choose another id"
                raise FeedbackError("an experiment with this id exists", subject=record.id, advice=advice)
            running = running_in(entries, record.memory)
            if running is not None and record.is_running:
                advice = "wait for its end, or stop it"
                raise FeedbackError("another experiment is running", subject=running.id, advice=advice)
            EXPERIMENTS.put(entries, record)

    def running_experiment(self, memory: str | None = None) -> Experiment | None:
        """Return the running experiment of a memory, given the memory's id."""
        with self.reading() as entries:
            return running_in(entries, memory)

    def experiments(self) -> list[Experiment]:
        """Return all experiments, oldest first."""
        with self.reading() as entries:
            return EXPERIMENTS.all(entries)

    def end_experiment(
        self, experiment_id: str, at: datetime, reason: str, winner: Side | None
    ) -> Experiment:
        """End a running experiment and return it: decided if there is a winner, otherwise stopped.

        Raises:
            FeedbackError: It does not exist, or has already ended.
        """
        with self.writing() as entries:
            record = _experiment(entries, experiment_id)
            if not record.is_running:
                advice = "start another one"
                raise FeedbackError("the experiment has ended already", subject=experiment_id, advice=advice)
            ended = replace(
                record,
                state="stopped" if winner is None else "decided",
                ended_at=at,
                reason=plain_text(reason),
                winner=winner,
            )
            EXPERIMENTS.put(entries, ended)
        return ended

    def record_outcomes(self, outcomes: Iterable[Outcome]) -> bool:
        """Record the outcomes of queries, all or none; each replaces the earlier one of its query.

        Returns whether all were recorded. Outcomes after the end of an experiment are not: the evidence stays
        what the decision was based on.

        Raises:
            FeedbackError: An experiment does not exist.
        """
        are_all_recorded = True
        with self.writing() as entries:
            experiment = cache(partial(_experiment, entries))  # all outcomes are usually of the same one
            for one in outcomes:
                if not experiment(one.experiment_id).is_running:
                    are_all_recorded = False
                    continue
                # The time of the first outcome stays, and with it the order in which the test reads them.
                first = OUTCOMES.find(entries, one.experiment_id, one.trace_id, one.query_id)
                OUTCOMES.put(entries, replace(one, at=first.at) if first else one)
        return are_all_recorded

    def outcomes(self, experiment_id: str) -> list[Outcome]:
        """Return the outcomes of queries, in the order of their first recording."""
        prefix = f"{key_text(experiment_id)[:-1]}, "
        with self.reading() as entries:
            return sorted(OUTCOMES.all(entries, prefix=prefix), key=lambda one: one.at)

    def move_experiments(self, was: str, memory: str) -> None:
        """Move the experiments of one memory to another, in which at most one is running."""
        with self.writing() as entries:
            for one in EXPERIMENTS.all(entries):
                if one.memory == was != memory and not (one.is_running and running_in(entries, memory)):
                    EXPERIMENTS.put(entries, replace(one, memory=memory))


def running_in(entries: Entries, memory: str | None) -> Experiment | None:
    """Return the running experiment of a memory."""
    found = (one for one in EXPERIMENTS.all(entries) if one.is_running and one.memory == memory)
    return next(found, None)


def _experiment(entries: Entries, experiment_id: str) -> Experiment:
    record = EXPERIMENTS.find(entries, experiment_id)
    if record is None:
        raise FeedbackError(
            "there is no such experiment", subject=experiment_id, advice="see the list of experiments"
        )
    return record
