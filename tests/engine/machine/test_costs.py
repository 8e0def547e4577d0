"""What a run costs, in words."""

from allcores.machine.costs import core_time, duration


def test_durations_are_written_as_people_do():
    said = [duration(seconds) for seconds in (0.04, 9.94, 59, 61, 3599.6, 100_000)]
    assert said == ["0.0 s", "9.9 s", "59 s", "1 min 01 s", "1 h 00 min", "27 h 46 min"]
    said = [core_time(seconds) for seconds in (0.2, 36, 900, 5e4, 5e6)]
    assert said[:3] == ["0 core-seconds", "36 core-seconds", "0.25 core-hours"]
    assert said[3:] == ["14 core-hours", "1,389 core-hours"]
