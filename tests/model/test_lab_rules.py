"""The rules of root's file: how they are read, who they hold for, and what is refused."""

from __future__ import annotations

import tomllib

import pytest

from dibs.errors import UserError
from dibs.model import lab_rules
from dibs.model.lab_rules import Person, Rules

ANN = Person(1001, "ann", ("ann", "students", "vision"))
BEN = Person(1002, "ben", ("ben",))


def rules(text: str, is_site: bool = True) -> Rules:
    return lab_rules.parse(tomllib.loads(text), "/etc/dibs/config.toml", is_site)


def test_a_share_is_the_users_own_or_the_largest_of_a_group() -> None:
    found = rules("[shares.user]\nben = 3\n[shares.group]\nstudents = 0.5\nvision = 2\n")
    assert (found.share(ANN), found.share(BEN), found.share(Person(3, "eve"))) == (2, 3, 1)


def test_each_value_of_a_quota_is_found_by_itself() -> None:
    found = rules(
        '[quotas.default]\ngpus = 2\ntime = "1d"\n[quotas.user.ann]\ngpus = 4\n'
        "[quotas.group.students.each]\ngpu_hours_per_week = 40\n[quotas.group.vision.each]\ngpu_hours_per_week = 80\n"
    )
    ann, ben = found.quota(ANN), found.quota(BEN)
    assert (ann.gpus, ann.gpu_hours_per_week, ann.time, ann.vram) == (4, 80, 86400, None)
    assert (ben.gpus, ben.gpu_hours_per_week, ben.time) == (2, None, 86400)


def test_members_of_a_group_share_its_quota() -> None:
    found = rules("[quotas.group.students]\ngpus = 3\n")
    assert {group: quota.gpus for group, quota in found.shared_quotas(ANN).items()} == {"students": 3}
    assert found.shared_quotas(BEN) == {}
    assert found.quota(ANN).gpus is None


def test_a_user_may_limit_own_projects_and_root_wins() -> None:
    site = rules("[quotas.project.vision]\ngpus = 2\n")
    own = rules("[quotas.project.vision]\ngpus = 8\n[quotas.project.audio]\ngpus = 1\n", is_site=False)
    both = lab_rules.merged(site, own).project
    assert {name: quota.gpus for name, quota in both.items()} == {"audio": 1, "vision": 2}
    assert lab_rules.merged(None, own) is own
    # Root's may be read again later; those of the user stay.
    assert {name: quota.gpus for name, quota in site.own_project.items()} == {"audio": 1, "vision": 8}
    assert own.own_project == own.project


def test_no_rules_limit_nobody() -> None:
    assert not rules("").has_quotas
    assert not Rules().names_groups
    assert rules("[quotas.user.ann]\ngpus = 0\n").has_quotas


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[quotas.user.ann]\ngpu = 2\n", '[quotas.user.ann]: there is no "gpu".'),
        ("[quotas.user.ann]\ngpus = -1\n", "gpus: expected a whole number from 0 up"),
        ("[quotas.user.ann]\ngpus = true\n", "expected a whole number"),
        ("[quotas.user]\nann = 2\n", "expected a table"),
        ("[quotas.users.ann]\ngpus = 2\n", '[quotas]: there is no "users".'),
        ("[quotas.default]\ntime = 2\n", "write 2m or 2s"),
        ('[quotas.default]\nvram = "much"\n', "expected a size"),
        ("[shares]\nann = 2\n", '[shares]: there is no "ann".'),
        ("[shares.user]\nann = 0\n", "shares.user.ann: expected a number above 0"),
        ("[shares.user]\nann = 'x'\n", "expected a number above 0"),
    ],
)
def test_mistakes_are_named(text: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        rules(text)
    assert told in caught.value.message


@pytest.mark.parametrize(
    "text", ["[shares.user]\nann = 2\n", "[quotas.default]\ngpus = 2\n", "[quotas.user.a]\ngpus=2"]
)
def test_a_user_cannot_set_rules_for_people(text: str) -> None:
    with pytest.raises(UserError, match=r"can be set only in /etc/dibs/config.toml"):
        rules(text, is_site=False)


def test_a_prepared_tree_has_its_own_file() -> None:
    assert lab_rules.site_file(None) == lab_rules.site_file("/tmp") == "/etc/dibs/config.toml"
    assert lab_rules.site_file("/run/dibs") == "/etc/dibs/config.toml"
    assert lab_rules.site_file("/image/run/dibs") == "/image/etc/dibs/config.toml"
