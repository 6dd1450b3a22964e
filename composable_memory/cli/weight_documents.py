"""The JSON documents of `cmem weights` and `cmem advise`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from composable_memory.cli.tuning_documents import TableDocument
from composable_memory.cli.weight_words import kinds_of, proportions
from composable_memory.learning import Advice, WeightsReport
from composable_memory.tools import Document
from composable_memory_feedback.advice.values import AdvisorName, Objection, Proposal
from composable_memory_feedback.guardrails import same_proportions
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.values import WeightAction, WeightChange
from composable_memory_feedback.weights import WeightTable

__all__ = [
    "AdviceDocument",
    "AdvisedWeight",
    "DifferenceDocument",
    "DifferingWeight",
    "HistoryDocument",
    "ProposalDocument",
    "WeightChangeDocument",
    "WeightsDocument",
]


class WeightsDocument(Document):
    """`cmem weights show`, `set` and `rollback`: the weights in force, and those of the settings.

    Without `since`, those of the settings are in force. `experiment` is the id of one that runs.
    """

    table: TableDocument
    settings: TableDocument
    reason: str
    since: datetime | None = None
    set_aside: str | None = None
    experiment: str | None = None

    @classmethod
    def of(cls, report: WeightsReport) -> "WeightsDocument":
        """Return the document of a report."""
        return cls(
            table=TableDocument.of(report.table),
            settings=TableDocument.of(report.base),
            reason=report.table.reason,
            since=report.since,
            set_aside=report.set_aside,
            experiment=report.experiment.id if report.experiment else None,
        )


# --- history and differences --------------------------------------------------------------------------------


class WeightChangeDocument(Document):
    """One change: `version` came into force for `replaced`; without one, they are the settings' weights."""

    at: datetime
    action: WeightAction
    version: str | None = None
    replaced: str | None = None
    actor: str
    reason: str
    weights: Mapping[str, float]
    by_intent: Mapping[IntentKind, Mapping[str, float]]
    gain: Interval | None = None

    @classmethod
    def of(cls, change: WeightChange) -> "WeightChangeDocument":
        """Return the document of a change."""
        return cls.model_validate(change, from_attributes=True)


class HistoryDocument(Document):
    """`cmem weights history`, the latest first."""

    changes: tuple[WeightChangeDocument, ...]


class DifferingWeight(Document):
    """The weight of one backend in both tables, the heaviest as 1; for all questions, or those of a kind."""

    backend: str
    intent: IntentKind | None = None
    a: float
    b: float


class DifferenceDocument(Document):
    """`cmem weights diff`: two tables, weight by weight."""

    a: TableDocument
    b: TableDocument
    ranks_alike: bool
    weights: tuple[DifferingWeight, ...]

    @classmethod
    def of(cls, a: WeightTable, b: WeightTable, backends: Sequence[str]) -> "DifferenceDocument":
        """Return what differs between two tables for the backends."""
        weights = (
            DifferingWeight(backend=one, intent=kind, a=weight, b=proportions(b, kind, backends)[one])
            for kind in (None, *kinds_of(a, b))
            for one, weight in proportions(a, kind, backends).items()
        )
        return cls(
            a=TableDocument.of(a),
            b=TableDocument.of(b),
            ranks_alike=same_proportions(a, b, backends=backends),
            weights=tuple(weights),
        )


# --- advice -------------------------------------------------------------------------------------------------


class AdvisedWeight(Document):
    """What is proposed for one backend, for all questions or those of a kind; the heaviest weight is 1.

    `plausible` is the 95 % interval of the best weight, `sample_size` how many queries tell of it. Without
    words of the advisor on this weight, `rationale` is empty.
    """

    backend: str
    intent: IntentKind | None = None
    current: float
    suggested: float
    plausible: Interval | None = None
    sample_size: int
    confidence: float | None = None
    rationale: str = ""


class ProposalDocument(Document):
    """A table that an advisor proposes; `gain` is the change of nDCG that a replay lets expect.

    `destination` is where a table leads that is one step of a way, and `destination_gain` what all of the way
    gains.
    """

    advisor: AdvisorName
    made_at: datetime
    sample_size: int
    current: TableDocument
    suggested: TableDocument
    weights: tuple[AdvisedWeight, ...]
    gain: Interval | None = None
    gain_by_intent: Mapping[IntentKind, Interval]
    destination: TableDocument | None = None
    destination_gain: Interval | None = None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, proposal: Proposal) -> "ProposalDocument":
        """Return the document of a proposal."""
        return cls(
            advisor=proposal.advisor,
            made_at=proposal.made_at,
            sample_size=proposal.sample_size,
            current=TableDocument.of(proposal.current),
            suggested=TableDocument.of(proposal.table),
            weights=_advised(proposal),
            gain=proposal.gain,
            gain_by_intent=proposal.gain_by_intent,
            destination=TableDocument.of(proposal.destination) if proposal.destination else None,
            destination_gain=proposal.destination_gain,
            notes=proposal.notes,
        )


class AdviceDocument(Document):
    """`cmem advise`: a proposal, and what the guardrails say of it.

    `cases` counts the judged queries that were replayed, `adjustments` say what was cut down before.
    `applied` is the version under which the table came into force.
    """

    proposal: ProposalDocument
    cases: int
    allowed: bool
    objections: tuple[Objection, ...]
    adjustments: tuple[str, ...]
    applied: str | None = None

    @classmethod
    def of(cls, advice: Advice, *, applied: str | None = None) -> "AdviceDocument":
        """Return the document of an advice."""
        return cls(
            proposal=ProposalDocument.of(advice.proposal),
            cases=advice.cases,
            allowed=advice.verdict.is_allowed,
            objections=advice.verdict.objections,
            adjustments=advice.verdict.adjustments,
            applied=applied,
        )


def _advised(proposal: Proposal) -> tuple[AdvisedWeight, ...]:
    """Return every weight of the proposed table, with what the advisor said of it.

    The weights are those of the tables: an advisor may have wished for more than the guardrails left.
    """
    current, table = proposal.current, proposal.table
    backends = sorted({*current.weights, *table.weights}, key=[*current.weights, *table.weights].index)
    said = {(one.backend, one.intent): one for one in proposal.changes}
    rows = []
    for kind in (None, *kinds_of(current, table)):
        before, after = (proportions(one, kind, backends) for one in (current, table))
        for backend in backends:
            advice = said.get((backend, kind))
            row = AdvisedWeight(
                backend=backend,
                intent=kind,
                current=before[backend],
                suggested=after[backend],
                plausible=advice.plausible if advice else None,
                sample_size=advice.sample_size if advice else 0,
                confidence=advice.confidence if advice else None,
                rationale=advice.rationale if advice else "",
            )
            rows.append(row)
    return tuple(rows)
