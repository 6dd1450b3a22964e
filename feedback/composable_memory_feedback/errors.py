"""The error of judgements, weights and replays; this package does not know the errors of the core."""


class FeedbackError(Exception):
    """Learning, judging or replaying failed: what failed, which thing, what to do next."""

    def __init__(self, problem: str, *, subject: str, advice: str) -> None:
        super().__init__(f"{problem}: {subject}; {advice}")
        self.problem = problem
        self.subject = subject
        self.advice = advice
