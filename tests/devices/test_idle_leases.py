"""Leased devices that show no use."""

import dataclasses

import build
from dibs.devices import idle_leases
from dibs.devices.idle_leases import LeaseHolder

ANN = (LeaseHolder(1001, 7, "lease"),)
CARD = build.ids(0)[0]


def inventory(utilization):
    found = build.inventory(1)
    return dataclasses.replace(found, devices=(dataclasses.replace(found.devices[0], utilization=utilization),))


def after(*readings):
    """Return the idle leases after readings: utilization, holders, seconds, and the pids beside a borrower, if any."""
    found = {}
    for utilization, holders, at_s, *beside in readings:
        held, loans = {CARD: holders} if holders else {}, {CARD: beside[0]} if beside else {}
        found = idle_leases.advance(found, inventory(utilization), held, at_s * 1000, loans)
    return found


def test_a_leased_device_without_use_is_idle_since_the_first_reading_that_shows_it():
    found = after((0, ANN, 0), (0, ANN, 60), (0, ANN, 120))[CARD]
    assert (found.since, found.seen_at) == (0, 120_000)
    assert found.has_lasted(120)
    assert not found.has_lasted(121)


def test_any_use_starts_the_time_anew():
    assert after((0, ANN, 0), (5, ANN, 60)) == {}
    assert after((0, ANN, 0), (5, ANN, 60), (0, ANN, 120))[CARD].since == 120_000


def test_another_holder_starts_the_time_anew():
    assert after((0, ANN, 0), (0, (LeaseHolder(1002, 8),), 60))[CARD].since == 60_000


def test_nothing_is_known_about_a_long_time_without_readings():
    assert after((0, ANN, 0), (0, ANN, 3600))[CARD].since == 3_600_000


def test_a_free_device_and_one_that_does_not_report_its_use_are_not_named():
    assert after((0, (), 0)) == {}
    assert after((None, ANN, 0)) == {}


def test_what_a_borrower_does_is_no_use_and_what_others_do_is():
    assert after((0, ANN, 0), (90, ANN, 60, []))[CARD].since == 0
    assert after((0, ANN, 0), (90, ANN, 60, []), (90, ANN, 70, [7])) == {}
