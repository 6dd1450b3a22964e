"""What `make test` tries of the contract of a backend that is slow to start; `.ci/full` tries the rest."""

from composable_memory.testing import AnswerContract, BackendContract

__all__ = ["InShort"]


class InShort:
    """Beside a suite that opens the backend, and a class marked `thorough` with the whole contract."""

    test_the_seeded_questions_are_answered = BackendContract.test_the_seeded_questions_are_answered
    test_every_result_is_sound = BackendContract.test_every_result_is_sound
    test_a_closed_memory_is_unavailable = BackendContract.test_a_closed_memory_is_unavailable
    test_the_event_loop_is_not_blocked = BackendContract.test_the_event_loop_is_not_blocked
    test_what_is_declared_is_there = BackendContract.test_what_is_declared_is_there_and_what_is_not_is_refused
    test_an_answer_holds_what_a_search_returns = AnswerContract.test_an_answer_holds_what_a_search_returns
