"""Plugins are found by their files, read as text, and run only when somebody names them."""

from __future__ import annotations

import sys
import textwrap

import pytest
from conftest import write_loss

from lossbench.core.errors import PluginError
from lossbench.plugins.registry import KINDS, REQUIRED, OptionError, Registry


def test_options_are_the_keyword_only_arguments(registry):
    options = registry.find("loss", "w_softmax").options
    assert list(options) == ["alpha", "gradient"]
    assert options["alpha"].default == 1.0
    assert options["alpha"].annotation is float


@pytest.mark.parametrize("kind", KINDS)
def test_every_plugin_has_a_summary_and_typed_options_with_defaults(registry, kind):
    assert registry.names(kind)
    for name in registry.names(kind):
        plugin = registry.find(kind, name)
        assert plugin.summary != "(no docstring)"
        assert all(option.annotation_text != "anything" for option in plugin.options.values()), name
        required = any(option.default is REQUIRED for option in plugin.options.values())
        assert not required or name in ("timm", "folder", "folder_unseen") or "NAMES" in plugin.constants


def test_a_broken_file_hurts_only_the_one_who_names_it(tmp_path):
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "broken.py").write_text("def Loss(:\n")
    registry = Registry([tmp_path])
    assert "broken" in registry.names("loss")
    assert registry.find("loss", "softmax").options
    with pytest.raises(PluginError, match=r"broken\.py:1: is not valid Python"):
        registry.find("loss", "broken").options  # noqa: B018 - the property raises


def test_a_file_that_fails_on_import_leaves_no_module_behind(tmp_path):
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "failing.py").write_text('"""x"""\nimport a_module_that_is_not_there\nclass Loss: ...\n')
    plugin = Registry([tmp_path]).find("loss", "failing")
    with pytest.raises(PluginError, match=r"fails on import \(ModuleNotFoundError"):
        plugin.load()
    assert not [name for name in sys.modules if "failing" in name]


def test_a_file_without_the_class_says_so(tmp_path):
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "empty.py").write_text('"""x"""\n')
    with pytest.raises(PluginError, match="defines no 'Loss'"):
        Registry([tmp_path]).find("loss", "empty").options  # noqa: B018 - the property raises


def test_two_plugins_with_one_name_are_an_error_naming_both_files(tmp_path, registry):
    mine = write_loss(tmp_path, "softmax", "pass")
    with pytest.raises(PluginError) as refused:
        Registry([tmp_path]).find("loss", "softmax")
    assert str(mine) in str(refused.value)
    assert str(registry.find("loss", "softmax").path) in str(refused.value)


def test_a_copy_of_the_same_file_is_no_quarrel(tmp_path, registry):
    """A suite at the top of a checkout sees the checkout's own losses/ beside the installed ones."""
    original = registry.find("loss", "softmax")
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "softmax.py").write_bytes(original.source)
    assert Registry([tmp_path]).find("loss", "softmax").source_hash == original.source_hash


def test_editing_a_file_changes_its_source_hash(tmp_path):
    path = write_loss(tmp_path, "mine", "pass")
    before = Registry([tmp_path]).find("loss", "mine").source_hash
    path.write_text(path.read_text() + "# a remark\n")
    assert Registry([tmp_path]).find("loss", "mine").source_hash != before


def test_an_unknown_name_suggests_the_nearest(registry):
    with pytest.raises(PluginError, match=r"unknown loss 'arc_softmax'; did you mean '.*softmax'"):
        registry.find("loss", "arc_softmax")


def test_the_name_of_a_model_says_how_it_is_written(registry):
    with pytest.raises(PluginError, match=r"known: cnn, mlp, timm; a model of timm is written timm\[model=vit_tiny\]"):
        registry.find("backbone", "vit_tiny")
    for kind, name in (("backbone", "cmm"), ("loss", "vit_tiny")):
        with pytest.raises(PluginError) as refused:
            registry.find(kind, name)
        assert "a model of timm" not in str(refused.value)


def test_a_missing_plugin_folder_is_refused(tmp_path):
    with pytest.raises(PluginError, match="is not a folder"):
        Registry([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"alpha": True}, "must be float, got True"),
        ({"alpha": "1"}, "must be float"),
        ({"gradient": "none"}, "must be Literal"),
        ({"beta": 1}, "did you mean 'alpha'|known:"),
    ],
)
def test_options_are_checked_by_name_and_type(registry, given, problem):
    with pytest.raises(OptionError, match=problem) as refused:
        registry.find("loss", "w_softmax").parse_options(given)
    assert refused.value.option == next(iter(given))


def test_an_array_fits_an_option_that_is_a_tuple(registry):
    options = registry.find("backbone", "cnn").parse_options({"channels": [4, 8], "depths": [1, 2]})
    assert options["channels"] == (4, 8)
    with pytest.raises(OptionError):
        registry.find("backbone", "cnn").parse_options({"depths": ["one"]})


def test_plugins_of_an_installed_package_are_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "site" / "their_losses"
    (package / "losses").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    (package / "losses" / "theirs.py").write_text('"""Their loss."""\nclass Loss:\n    def __init__(self, f, c): ...\n')
    metadata = tmp_path / "site" / "their_losses-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-losses\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[lossbench.plugins]\ntheirs = their_losses\n")
    code = textwrap.dedent("""
        from lossbench.plugins.registry import Registry
        print(Registry().find("loss", "theirs").summary)
    """)
    import os
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "Their loss.", found.stderr


def test_an_edit_within_the_same_second_and_of_the_same_size_is_seen(tmp_path):
    """Python's own import would take the byte-compiled old text for the new one."""
    path = write_loss(tmp_path, "mine", "pass")
    import os

    stamp = path.stat()
    values = []
    for number in (1, 2):
        path.write_text(path.read_text().replace("level: float = ", f"level: float = {number} or "))
        path.write_text(f'"""x"""\nclass Loss:\n    number = {number}\n    def __init__(self, f, c): ...\n')
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + number))
        values.append(Registry([tmp_path]).find("loss", "mine").load().number)
    assert values == [1, 2]
    assert not (tmp_path / "losses" / "__pycache__").exists()


def test_a_default_that_cannot_be_read_is_refused_not_guessed(tmp_path):
    (tmp_path / "losses").mkdir()
    source = '"""x"""\nimport math\nclass Loss:\n    def __init__(self, f, c, *, m: float = math.pi / 4): ...\n'
    (tmp_path / "losses" / "mine.py").write_text(source)
    with pytest.raises(PluginError, match=r"mine\.py:4: the default of option 'm' must be a literal"):
        Registry([tmp_path]).find("loss", "mine").options  # noqa: B018 - the property raises


def test_a_default_may_name_a_constant_of_the_file(tmp_path):
    (tmp_path / "losses").mkdir()
    source = '"""x"""\nSCALE: float = 7.5\nclass Loss:\n    def __init__(self, f, c, *, s: float = SCALE): ...\n'
    (tmp_path / "losses" / "mine.py").write_text(source)
    assert Registry([tmp_path]).find("loss", "mine").options["s"].default == 7.5


def test_the_source_hash_covers_what_a_loss_shares_with_others(tmp_path, registry):
    assert set(registry.find("loss", "arcface").footprint.sources) == {"", "lossbench.fused", "lossbench.margin"}
    assert set(registry.find("backbone", "cnn").footprint.sources) == {""}


def test_odd_files_among_the_plugins_disturb_nobody(tmp_path):
    folder = tmp_path / "losses"
    (folder / "folder.py").mkdir(parents=True)
    (folder / ".#lock.py").symlink_to("nobody@nowhere.1")
    (folder / "_private.py").write_text("")
    (folder / "dangling.py").symlink_to("nowhere")
    assert set(Registry([tmp_path]).names("loss")) == set(Registry().names("loss"))
