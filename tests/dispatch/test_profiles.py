"""What is learned of how long batches take on one server."""

from __future__ import annotations

from tuner.dispatch.pool.profiles import LearnedProfile, prior_table


def test_what_a_slower_server_showed_is_doubted_when_it_is_old() -> None:
    """Not before: when batches ended is known after all before the change was forgotten."""
    profile, now = LearnedProfile(prior_table(16, 0.2)), 0.0
    for number in range(200):
        if not profile.drifts:
            profile.observe((8, 16)[number % 2], 0.02 if number < 100 else 0.05, now)
            now += 0.1
    assert profile.drifts == 1

    profile.doubt(8, now + 1.0)
    assert profile.tried

    profile.doubt(8, now + 11.0)
    assert not profile.tried
