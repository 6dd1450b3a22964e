"""The error of this package."""


class OpsLogError(Exception):
    """A log cannot be read as requested: what failed, which log or trace, what to do next."""

    def __init__(self, problem: str, *, subject: str, advice: str) -> None:
        super().__init__(f"{problem}: {subject}; {advice}")
        self.subject = subject
        self.advice = advice
