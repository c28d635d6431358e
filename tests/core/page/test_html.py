"""The page as HTML: text from outside stays text, long tables are folded, and the page's policy runs its own script."""

import base64
import hashlib
import json
import re
from dataclasses import replace

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import Difference, LaunchPlan
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.page.build import build
from ddtree_tune.core.page.html import html
from ddtree_tune.core.page.model import Section, Table
from ddtree_tune.core.record import Failure, Span
from tests.builders import FINGERPRINT, attempts, proposal, record, tree
from tests.core.page.reading import charts, read
from tests.core.page.test_page import SCRIPT, failed, page
from tests.core.test_conclusion import SWEEP, search

EVIL = """</script><script>alert(1)</script><img src=x onerror="alert('1')">'"--><!-- &lt; {{x}} `$"""


def hostile():
    """Every text that comes from outside, made an attack."""
    config = replace(tree(16, 4, 64), flags=((EVIL, EVIL),))
    node = replace(FINGERPRINT, hostname=EVIL, machine=EVIL, gpus=(EVIL,), driver=EVIL, packages=((EVIL, EVIL),))
    failure = Failure(FailureClass.STARTUP_OOM, EVIL, EVIL, f"{EVIL}\n{EVIL}\ud800\x00")
    plan = LaunchPlan(("python", EVIL), ((EVIL, EVIL),), "127.0.0.1", 1, "n")
    reply = replace(attempts(1, 1)[0], problem_id=EVIL, kind=EVIL, reason=EVIL, code=EVIL)
    searched = [record(SWEEP, proposal(80, config)), failed(81, config, FailureClass.STARTUP_OOM)]
    searched[1] = replace(searched[1], failure=failure, log=EVIL)
    changed = (
        replace(one, fingerprint=node, node=EVIL, plan=plan, door=f"http://h/{EVIL}") for one in (*search(), *searched)
    )
    return [
        replace(
            one, attempts=(reply,), spans=(Span(EVIL, 1.0), *one.spans), differences=(Difference(EVIL, EVIL, EVIL),)
        )
        for one in changed
    ]


def test_text_from_outside_stays_text_everywhere():
    records = hostile()
    sweep = SWEEP.model_copy(update={"question": EVIL})
    root, text = page(records, sweep, spec_text=EVIL, driver=records[0].fingerprint)
    assert [one.attributes for one in root.find("script")] == [{"type": "application/json", "id": "charts"}, {}]
    assert root.find("script")[1].text == SCRIPT
    assert not root.find("img")
    assert not re.findall(r"<[^>]* on\w+=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert text.count("<script") == text.count("</script>") == 2
    body = root.find("main")[0].text
    assert body.count(EVIL) > 40
    rows_of_charts = json.dumps(charts(root), ensure_ascii=False)
    assert json.dumps(EVIL, ensure_ascii=False)[1:20] in rows_of_charts
    assert not set("<>&") & set(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])


def test_a_long_table_is_folded_away_and_keeps_its_rows():
    table = Table(("trial", ">x"), tuple((str(n), EVIL) for n in range(41)), "All of them")
    whole = build([], conclude([], SWEEP), SWEEP)
    long, short = (
        read(html(replace(whole, sections=(Section("k", "K", "", (replace(table, rows=table.rows[:n]),)),)), SCRIPT))
        for n in (41, 40)
    )
    assert long.find("details")[0].find("summary")[0].text == "All of them, 41 rows"
    assert len(long.find("tbody")[0].find("tr")) == 41
    assert not short.find("details")
    assert short.find("caption")[0].text == "All of them"


def test_the_policy_runs_only_the_script_whose_hash_it_names_and_loads_nothing():
    text = html(build([], conclude([], SWEEP), SWEEP), "run('</script><!-- x');")
    root = read(text)
    (policy,) = [one.attributes["content"] for one in root.find("meta") if "http-equiv" in one.attributes]
    script = root.find("script")[1].text
    assert script == "run('<\\/script><\\!-- x');"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert not re.search(r'src=|href="(?!#)|url\(|@import', text)
