"""Calls every operation of the management API that the Python client library has and this server answers.

Usage: every_operation.py URL KEY_ID KEY ORGANIZATION OUTSIDER_EMAIL

The key owns the organization; OUTSIDER_EMAIL is a person on the server who is no member of it yet. The last line is a
report: what the library offers, and what of it was called. tests/clients.rs compares the two.
"""

import asyncio
import hashlib
import inspect
import json
import sys
import tempfile
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib import GRPCError, Status
from viam.app.app_client import APIKeyAuthorization, AppClient, Fragment
from viam.app.viam_client import ViamClient
from viam.proto.app import (
    Authorization, AuthorizedPermissions, LogOrder, Model, ModuleFileInfo, RegistryItemStatus, Visibility,
)
from viam.proto.app.packages import GetPackageRequest, PackageServiceStub, PackageType
from viam.proto.app.robot import LogRequest, RobotServiceStub
from viam.proto.common import LogEntry
from viam.rpc.dial import Credentials, DialOptions

METHODS = {name for name, _ in inspect.getmembers(AppClient, inspect.iscoroutinefunction) if not name.startswith("_")}


class Watched:
    """The client, and which of its methods were called."""

    def __init__(self, app):
        self._app, self.called = app, set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(self._app, name)


async def refused(call, status):
    try:
        await call
    except GRPCError as why:
        assert why.status == status, f"{why.status}: {why.message}"
    else:
        raise AssertionError(f"{status} was expected")


async def connect(url, key_id, key):
    credentials = Credentials(type="api-key", payload=key)
    options = DialOptions(auth_entity=key_id, credentials=credentials, insecure=url.startswith("http:"))
    return await ViamClient.create_from_dial_options(options, app_url=url)


async def organizations(app, org):
    assert [one.id for one in await app.list_organizations()] == [org]
    assert (await app.get_organization(org)).id == org
    assert await app.get_organization_namespace_availability("acme-1")
    changed = await app.update_organization(org, name="Acme", public_namespace="acme-1", region="eu", cid="42")
    assert (changed.name, changed.public_namespace, changed.default_region) == ("Acme", "acme-1", "eu")
    assert not await app.get_organization_namespace_availability("acme-1")
    second = await app.create_organization("Second")
    assert {one.id for one in await app.list_organizations()} == {org, second.id}
    return second.id


async def locations(app, org, second):
    north = await app.create_location(org, "North")
    hall = await app.create_location(org, "Hall", north.id)
    assert (await app.get_location(hall.id)).parent_location_id == north.id
    assert (await app.update_location(hall.id, name="Hall 2", parent_location_id="")).parent_location_id == ""
    assert {one.id for one in await app.list_locations(org)} == {north.id, hall.id}
    await app.share_location(second, north.id)
    assert [one.id for one in await app.get_organizations_with_access_to_location(north.id)] == [org, second]
    await app.unshare_location(second, north.id)
    auth = await app.create_location_secret(north.id)
    assert len((await app.location_auth(north.id)).secrets) == 1
    await app.delete_location_secret(auth.secrets[0].id, north.id)
    await app.delete_location(hall.id)
    await refused(app.get_location(hall.id), Status.NOT_FOUND)
    # The only location of the key's only organization with one is what an absent one means.
    assert (await app.get_location()).id == north.id
    return north.id


async def machines(app, location):
    robot = await app.new_robot("arm", location)
    assert [one.id for one in await app.list_robots(location)] == [robot]
    assert (await app.update_robot(robot, "Arm", location)).name == "Arm"
    assert (await app.get_robot(robot)).name == "Arm"
    main = (await app.get_robot_parts(robot))[0]
    assert main.main_part
    second = await app.new_robot_part(robot, "wrist")
    await app.mark_part_as_main(second)
    await refused(app.delete_robot_part(second), Status.FAILED_PRECONDITION)
    await app.mark_part_as_main(main.id)
    await app.mark_part_for_restart(main.id)
    with_secret = await app.create_robot_part_secret(second)
    assert len(with_secret.secrets) == 2
    await app.delete_robot_part_secret(second, with_secret.secrets[0].id)
    updated = await app.update_robot_part(main.id, main.name, {"n": 10}, last_known_update=main.last_updated)
    assert updated.robot_config == {"n": 10}, updated.robot_config
    await refused(app.update_robot_part(main.id, main.name, {"n": 11}, main.last_updated), Status.ABORTED)
    assert (await app.get_robot_part(main.id)).robot_config_json == '{"n":10}'
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "part.json")
        await app.get_robot_part(main.id, dest=str(saved), indent=2)
        assert saved.read_text() == '{\n  "n": 10\n}', saved.read_text()
        await app.get_robot_part(second, dest=str(saved))
        assert json.loads(saved.read_text()) == {}, "a part that was never configured can be saved too"
    await app.delete_robot_part(second)
    assert len(await app.get_robot_part_history(main.id)) == 1
    assert list(await app.get_robot_part_logs(main.id)) == []
    return robot, main.id


async def logs(client, app, part):
    device = RobotServiceStub(client._channel)  # an owner's key may make a device's calls

    async def say(message):
        entry = LogEntry(level="info", message=message, logger_name="test")
        await device.Log(LogRequest(id=part, logs=[entry]), metadata=client._metadata)

    # A reader sees what arrives once it follows, and nothing tells when that is: say until it is heard.
    followed = await app.tail_robot_part_logs(part, errors_only=False)
    heard = asyncio.ensure_future(followed.__anext__())
    count = 0
    while not heard.done():
        assert count < 1000, "nothing was heard"
        await say(f"line {count}")
        count += 1
        await asyncio.wait([heard], timeout=0.05)
    assert heard.result()[0].message.startswith("line ")
    kept = await app.get_robot_part_logs(part, num_log_entries=0)
    assert [one.message for one in kept] == [f"line {n}" for n in reversed(range(count))], "newest first, each once"
    assert len(await app.get_robot_part_logs(part, filter="line 0")) == 1
    assert await app.get_robot_part_logs(part, log_levels=["error"]) == []


async def pages_of_logs(client, app, part):
    """More lines than a page of the server's has: the library asks for one after the other."""
    device = RobotServiceStub(client._channel)
    begin, entries = datetime.now(timezone.utc), []
    times = [begin + timedelta(milliseconds=n) for n in range(250)]
    for n, moment in enumerate(times):
        time = Timestamp()
        time.FromDatetime(moment)
        entries.append(LogEntry(level="warn", message=f"page {n}", logger_name="pages.of", time=time))
    await device.Log(LogRequest(id=part, logs=entries), metadata=client._metadata)

    async def read(**wanted):
        return [one.message for one in await app.get_robot_part_logs(part, filter="page ", **wanted)]

    newest = [f"page {n}" for n in reversed(range(250))]
    for count, expected in [(0, newest), (100, newest[:100]), (130, newest[:130]), (250, newest), (300, newest)]:
        assert await read(num_log_entries=count) == expected, count
    assert await read() == newest[:100], "100 unless asked otherwise"
    every = {"num_log_entries": 0}
    assert await read(order=LogOrder.LOG_ORDER_ASCENDING, **every) == newest[::-1]
    later = await read(start=times[200], order=LogOrder.LOG_ORDER_ASCENDING, **every)
    assert later[-1] == "page 249" and len(later) in (49, 50), later
    assert await read(start=times[0] - timedelta(seconds=1), range="10m", **every) == newest
    assert await read(end=times[0] - timedelta(seconds=1), range="1h", **every) == []
    await refused(app.get_robot_part_logs(part, start=times[0], end=times[9], range="10m"), Status.INVALID_ARGUMENT)
    assert await read(log_levels=["warn"], **every) == newest
    try:
        await read(num_log_entries=-1)
    except ValueError:
        pass
    else:
        raise AssertionError("the library takes no negative count")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "part.log")
        assert await read(dest=str(saved), **every) == newest
        # Of each line: when, level, who, file and line of code, and the text behind that.
        lines = [line.split("\t") for line in saved.read_text().splitlines()]
        assert [(one[1], one[2], one[3][64:]) for one in lines] == [("WARN", "pages", text) for text in newest], lines[0]


async def fragments(app, org):
    made = await app.create_fragment(org, "base", {"a": 1})
    changed = await app.update_fragment(made.id, "base", {"a": 2}, visibility=Fragment.Visibility.PUBLIC_UNLISTED)
    assert changed.visibility == Fragment.Visibility.PUBLIC_UNLISTED
    changed = await app.update_fragment(made.id, "base", {"a": 3}, public=True)
    assert changed.visibility == Fragment.Visibility.PUBLIC_UNLISTED, "public says nothing about listing"
    assert (await app.get_fragment(made.id)).fragment == {"a": 3}
    assert (await app.get_fragment(made.id, version="1")).fragment == {"a": 1}
    unlisted = await app.list_fragments(org, visibilities=[Fragment.Visibility.PUBLIC_UNLISTED])
    assert made.id in {one.id for one in unlisted}
    assert made.id not in {one.id for one in await app.list_fragments(org, show_public=False)}, "private ones only"
    assert len(await app.get_fragment_history(made.id)) == 3
    await app.delete_fragment(made.id)
    await refused(app.get_fragment(made.id), Status.NOT_FOUND)


async def registry(app, org, robot, part):
    await app.create_registry_item(org, "detector", PackageType.PACKAGE_TYPE_ML_MODEL)
    again = app.create_registry_item(org, "detector", PackageType.PACKAGE_TYPE_ML_MODEL)
    await refused(again, Status.ALREADY_EXISTS)
    await app.update_registry_item(
        "acme-1:detector", PackageType.PACKAGE_TYPE_ML_MODEL, "finds screws", Visibility.VISIBILITY_PUBLIC
    )
    item = await app.get_registry_item("acme-1:detector", include_markdown_documentation=True)
    assert (item.item_id, item.description) == ("acme-1:detector", "finds screws")
    assert (await app.get_registry_item(f"{org}:detector")).item_id == item.item_id

    async def found(**wanted):
        every = {"types": [], "visibilities": [], "platforms": [], "statuses": [], **wanted}
        return [one.item_id for one in await app.list_registry_items(org, **every)]

    assert await found() == ["acme-1:detector"]
    assert await found(visibilities=[Visibility.VISIBILITY_PRIVATE]) == []
    assert await found(statuses=[RegistryItemStatus.REGISTRY_ITEM_STATUS_PUBLISHED]) == []
    assert await found(search_term="SCREW") == ["acme-1:detector"]
    assert await found(page_token="acme-1:detector") == []
    main = await app.get_robot_part(part)
    config = {"packages": [{"name": "d", "package": "acme-1/detector"}]}
    await app.update_robot_part(part, main.name, config)
    assert (await app.get_registry_item("acme-1:detector")).total_robot_usage == 1
    await refused(app.delete_registry_item("acme-1:detector"), Status.FAILED_PRECONDITION)
    await app.update_robot_part(part, main.name, {"n": 10})
    await app.delete_registry_item("acme-1:detector")
    await refused(app.get_registry_item("acme-1:detector"), Status.NOT_FOUND)


async def modules(app, url, client, org):
    id, address = await app.create_module(org, "camera")
    assert id == "acme-1:camera" and address.endswith("/packages/v1/acme-1/camera"), (id, address)
    models = [Model(api="rdk:component:camera", model="acme-1:camera:usb")]
    await app.update_module(id, "https://example.org", "takes pictures", models, "bin/run", public=True)
    # Large enough for several windows of flow control and many frames.
    file = bytes(range(256)) * 40_000

    def about(version, module=id):
        return ModuleFileInfo(module_id=module, version=version, platform="linux/any")

    place = await app.upload_module_file(about("1.10.0"), file)
    assert place.endswith("/packages/v1/acme-1/camera/1.10.0/linux/any"), place
    assert await app.upload_module_file(about("1.10.0"), file) == place, "the same bytes once more"
    await app.upload_module_file(about("1.9.0"), b"x")
    await refused(app.upload_module_file(about("1.9.0"), file), Status.ALREADY_EXISTS)
    # Refused before the file was read: the client hears why, and not that the stream broke.
    await refused(app.upload_module_file(about("one"), file), Status.INVALID_ARGUMENT)
    await refused(app.upload_module_file(about("1.0.0", "acme-1:none"), file), Status.NOT_FOUND)
    module = await app.get_module(id)
    assert [one.version for one in module.versions] == ["1.9.0", "1.10.0"]
    assert (module.visibility, module.entrypoint) == (Visibility.VISIBILITY_PUBLIC, "bin/run")
    assert [one.module_id for one in await app.list_modules(org)] == [id]
    packages = PackageServiceStub(client._channel)
    asked = GetPackageRequest(id="acme-1/camera", version="latest", platform="linux/arm64", include_url=True)
    package = (await packages.GetPackage(asked, metadata=client._metadata)).package
    assert package.info.version == "1.10.0" and package.checksum == hashlib.sha256(file).hexdigest()
    fetched = urllib.request.Request(package.url, headers={**client._metadata, "Range": "bytes=256-511"})
    with urllib.request.urlopen(fetched) as answer:
        assert (answer.status, answer.read()) == (206, file[256:512])
    await app.update_module(id, "", "", None, "bin/run")
    assert (await app.get_module(id)).visibility == Visibility.VISIBILITY_PRIVATE, "what leaving it out means"
    await app.delete_registry_item(id)
    await refused(app.get_module(id), Status.NOT_FOUND)


async def metadata(app, ids):
    for kind, id in ids.items():
        read, write = getattr(app, f"get_{kind}_metadata"), getattr(app, f"update_{kind}_metadata")
        assert await read(id) == {}
        await write(id, {"colour": "blue", "sizes": [1, 2]})
        assert await read(id) == {"colour": "blue", "sizes": [1, 2]}
        await write(id, {})
        assert await read(id) == {}


def role(org, role, kind, id):
    return Authorization(
        authorization_type="role", authorization_id=f"{kind}_{role}", resource_type=kind, resource_id=id,
        organization_id=org,
    )


async def people(app, org, location, robot, outsider):
    await refused(app.get_user_id_by_email(outsider), Status.NOT_FOUND)
    invite = await app.create_organization_invite(org, "new@example.org")
    assert [one.authorization_id for one in invite.authorizations] == ["organization_owner"]
    await refused(app.create_organization_invite(org, "NEW@example.org"), Status.ALREADY_EXISTS)
    added, removed = role(org, "operator", "location", location), role(org, "owner", "organization", org)
    invite = await app.update_organization_invite_authorizations(org, "new@example.org", [added], [removed])
    assert [one.authorization_id for one in invite.authorizations] == ["location_operator"]
    last = app.update_organization_invite_authorizations(org, "new@example.org", None, [added])
    await refused(last, Status.FAILED_PRECONDITION)
    assert (await app.resend_organization_invite(org, "new@example.org")).email == "new@example.org"
    members, invites = await app.list_organization_members(org)
    assert (len(members), len(invites)) == (1, 1)
    await app.delete_organization_invite(org, "new@example.org")
    await refused(app.resend_organization_invite(org, "new@example.org"), Status.NOT_FOUND)

    user = members[0].user_id
    assert list(members[0].emails) != [outsider]
    assert await app.get_user_id_by_email(members[0].emails[0]) == user
    assert [one.org_id for one in await app.list_organizations_by_user(user)] == [org]
    await app.add_role(org, user, "operator", "location", location)
    await app.change_role(org, user, "operator", "location", location, user, "owner", "robot", robot)
    given = await app.list_authorizations(org, [robot])
    assert [(one.identity_id, one.identity_type, one.authorization_id) for one in given] == [(user, "user", "robot_owner")]
    assert len(await app.list_authorizations(org)) >= 3
    await app.remove_role(org, user, "owner", "robot", robot)
    await app.delete_organization_member(org, user)
    await refused(app.delete_organization_member(org, user), Status.NOT_FOUND)
    asked = AuthorizedPermissions(resource_type="robot", resource_id=robot, permissions=["write_robot", "train_models"])
    assert list((await app.check_permissions([asked]))[0].permissions) == ["write_robot"]
    await refused(app.check_permissions([]), Status.INVALID_ARGUMENT)


async def keys(app, url, org, robot):
    wanted = APIKeyAuthorization(role="operator", resource_type="robot", resource_id=robot)
    key, id = await app.create_key(org, [wanted], "for a test")
    operator = await connect(url, id, key)
    assert (await operator.app_client.get_robot(robot)).id == robot
    await refused(operator.app_client.delete_robot(robot), Status.PERMISSION_DENIED)
    assert [one.api_key.id for one in await app.get_robot_api_keys(robot)] == [id]
    key, id = await app.rotate_key(id)
    await refused(operator.app_client.get_robot(robot), Status.UNAUTHENTICATED)
    operator.close()
    (await connect(url, id, key)).close()
    _, copy = await app.create_key_from_existing_key_authorizations(id)
    assert {id, copy} <= {one.api_key.id for one in await app.list_keys(org)}
    await app.delete_key(copy)
    await app.delete_key(id)
    await refused(app.delete_key(id), Status.NOT_FOUND)


async def main(url, key_id, key, org, outsider):
    client = await connect(url, key_id, key)
    app = Watched(client.app_client)
    second = await organizations(app, org)
    location = await locations(app, org, second)
    robot, part = await machines(app, location)
    await logs(client, app, part)
    await pages_of_logs(client, app, part)
    await fragments(app, org)
    await registry(app, org, robot, part)
    await modules(app, url, client, org)
    await metadata(app, {"organization": org, "location": location, "robot": robot, "robot_part": part})
    await people(app, org, location, robot, outsider)
    await keys(app, url, org, robot)
    await app.delete_robot(robot)
    await refused(app.get_robot(robot), Status.NOT_FOUND)
    await app.delete_organization(second)
    await refused(app.delete_organization(org), Status.FAILED_PRECONDITION)
    client.close()
    print(json.dumps({"methods": sorted(METHODS), "called": sorted(app.called)}))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 300))
