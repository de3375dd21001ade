"""The learning rate at each step."""

import math


def learning_rate(step, peak, schedule, steps):
    """Returns the learning rate of update number step, counted from 0, of a run of steps updates.

    Warm-up is linear and reaches peak at update warmup_steps, so the first update is never wasted on a rate of zero.
    From there to the last update the rate goes from peak to final_fraction * peak: along a straight line (linear) or
    half a cosine (Loshchilov and Hutter, 2017, equation 5); constant keeps peak.

    Args:
        schedule: a ScheduleConfig.
    """
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    last = steps - 1
    if schedule.name == "constant" or last <= schedule.warmup_steps:
        return peak
    progress = min(1.0, (step - schedule.warmup_steps) / (last - schedule.warmup_steps))
    weight = 1 - progress if schedule.name == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * weight)


def depends_on_steps(schedule):
    """Returns whether a longer run has other learning rates from its first steps on."""
    return schedule.name != "constant"
