"""Crons through the official client: created, searched, counted, changed and deleted."""

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from common import run, same


async def gone(request):
    try:
        await request
    except Exception as error:
        same(error.response.status_code, 404)
    else:
        raise AssertionError("it is still there")


async def life(client):
    crons = client.crons
    made = await crons.create("counter", schedule="0 3 1 1 *", input={"count": 1}, metadata={"tag": "c"},
                              on_run_completed="keep", timezone=ZoneInfo("Europe/Paris"))
    same((made["schedule"], made["timezone"], made["on_run_completed"], made["enabled"]),
         ("0 3 1 1 *", "Europe/Paris", "keep", True))
    same(made["next_run_date"][5:], "01-01T02:00:00+00:00")
    same(made["payload"]["config"]["configurable"], {"cron_id": made["cron_id"]})
    thread = (await client.threads.create())["thread_id"]
    end = datetime(2100, 1, 1, tzinfo=timezone.utc)
    other = await crons.create_for_thread(thread, "router", schedule="30 4 1 1 *", input={"n": 1}, metadata={"tag": "c"},
                                          multitask_strategy="interrupt", end_time=end, enabled=False)
    same((other["thread_id"], other["on_run_completed"], other["enabled"]), (thread, None, False))
    same(datetime.fromisoformat(other["end_time"]), end)
    found = await crons.search(metadata={"tag": "c"})
    same([c["cron_id"] for c in found], [other["cron_id"], made["cron_id"]])
    found = await crons.search(assistant_id="counter", enabled=True, sort_by="next_run_date", sort_order="asc", select=["cron_id"])
    same(found, [{"cron_id": made["cron_id"]}])
    same((await crons.count(thread_id=thread), await crons.count(metadata={"tag": "c"})), (1, 2))
    changed = await crons.update(other["cron_id"], schedule="0 5 2 1 *", end_time=None, enabled=True, input={"n": 2})
    same((changed["schedule"], changed["end_time"], changed["enabled"]), ("0 5 2 1 *", None, True))
    same((changed["payload"]["input"], changed["next_run_date"][5:16]), ({"n": 2}, "01-02T05:00"))
    await crons.delete(made["cron_id"])
    await gone(crons.delete(made["cron_id"]))
    await client.threads.delete(thread)
    await gone(crons.update(other["cron_id"], enabled=False))
    same(await crons.count(metadata={"tag": "c"}), 0)


run(life)
