"""What can go wrong with judgements, weights and replays; nothing here knows the errors of other houses."""


class FeedbackError(Exception):
    """Something cannot be learnt, judged or replayed as asked: what failed, which thing, what to do next."""

    def __init__(self, problem: str, *, subject: str, advice: str) -> None:
        super().__init__(f"{problem}: {subject}; {advice}")
        self.problem = problem
        self.subject = subject
        self.advice = advice
