//! Every operation that the fleet server answers, and the command that calls it.

use std::collections::BTreeSet;

use api::pb::platform::app::v1 as app;

use super::{Desk, ORGANIZATION};

/// The server's own table.
const TABLE: &str = include_str!("../../../fleet/src/operations.rs");

/// What devices call about themselves: for people only by `call`.
const OF_DEVICES: [&str; 6] = ["Config", "Log", "NeedsRestart", "DeviceAgentConfig", "Report", "UploadLogs"];

/// Operation and command. `call` alone is nobody's command.
const COMMANDS: &[(&str, &str)] = &[
    ("GetUserIDByEmail", "member id ann@example.org"),
    ("CreateOrganization", "organization create beta"),
    ("ListOrganizations", "organization list"),
    ("GetOrganization", "organization get acme"),
    ("GetOrganizationNamespaceAvailability", "organization namespace acme"),
    ("UpdateOrganization", "organization update acme --name beta"),
    ("DeleteOrganization", "organization delete acme"),
    ("GetOrganizationsWithAccessToLocation", "location shared plant"),
    ("ListOrganizationsByUser", "member organizations ann@example.org"),
    ("ListOrganizationMembers", "member list"),
    ("CreateOrganizationInvite", "invite create ann@example.org --role operator --location plant --no-mail"),
    ("UpdateOrganizationInviteAuthorizations", "invite update ann@example.org --add owner --remove operator"),
    ("DeleteOrganizationMember", "member remove ann@example.org"),
    ("DeleteOrganizationInvite", "invite delete ann@example.org"),
    ("ResendOrganizationInvite", "invite resend ann@example.org"),
    ("GetOrganizationMetadata", "metadata get organization"),
    ("UpdateOrganizationMetadata", "metadata set organization object.json"),
    ("CreateLocation", "location create attic"),
    ("GetLocation", "location get 0a000000-0000-4000-8000-000000000002"),
    ("UpdateLocation", "location update plant --name mill"),
    ("DeleteLocation", "location delete plant"),
    ("ListLocations", "location list"),
    ("ShareLocation", "location share plant 0a000000-0000-4000-8000-000000000099"),
    ("UnshareLocation", "location unshare plant 0a000000-0000-4000-8000-000000000099"),
    ("LocationAuth", "location secret list plant"),
    ("CreateLocationSecret", "location secret create plant"),
    ("DeleteLocationSecret", "location secret delete 0a000000-0000-4000-8000-000000000098 --location plant"),
    ("GetLocationMetadata", "metadata get location --of plant"),
    ("UpdateLocationMetadata", "metadata set location --of plant object.json"),
    ("GetRobot", "machine get 0a000000-0000-4000-8000-000000000004"),
    ("GetRobotAPIKeys", "machine keys rover"),
    ("GetRobotParts", "part list rover"),
    ("GetRobotPart", "part config get rover"),
    ("GetRobotPartByNameAndLocation", "part find rover-main --location plant"),
    ("GetRobotPartLogs", "part logs rover"),
    ("TailRobotPartLogs", "part logs rover --follow"),
    ("GetRobotPartHistory", "part history rover"),
    ("UpdateRobotPart", "part update rover --name left"),
    ("NewRobotPart", "part create right --machine rover"),
    ("DeleteRobotPart", "part delete rover"),
    ("MarkPartAsMain", "part make-main rover"),
    ("MarkPartForRestart", "part restart rover"),
    ("CreateRobotPartSecret", "part secret create rover"),
    ("DeleteRobotPartSecret", "part secret delete 0a000000-0000-4000-8000-000000000097"),
    ("GetRobotPartMetadata", "metadata get part"),
    ("UpdateRobotPartMetadata", "metadata set part object.json"),
    ("ListRobots", "machine list"),
    ("NewRobot", "machine create arm --location lab"),
    ("UpdateRobot", "machine update rover --name tractor"),
    ("DeleteRobot", "machine delete rover"),
    ("GetRobotMetadata", "metadata get machine --of rover"),
    ("UpdateRobotMetadata", "metadata set machine --of rover object.json"),
    ("ListFragments", "fragment list"),
    ("GetFragment", "fragment get 0a000000-0000-4000-8000-000000000003"),
    ("CreateFragment", "fragment create base object.json"),
    ("UpdateFragment", "fragment update 0a000000-0000-4000-8000-000000000003 --visibility public"),
    ("DeleteFragment", "fragment delete 0a000000-0000-4000-8000-000000000003"),
    ("ListMachineFragments", "machine fragments rover"),
    ("ListMachineSummaries", "machine summary --location plant"),
    ("GetFragmentHistory", "fragment history 0a000000-0000-4000-8000-000000000003"),
    ("AddRole", "role add ann@example.org operator --machine rover"),
    ("RemoveRole", "role remove 0a000000-0000-4000-8000-000000000008 owner"),
    ("ChangeRole", "role change ann@example.org operator owner --location plant"),
    ("ListAuthorizations", "role list"),
    ("CheckPermissions", "role check read_robot write_robot --machine rover"),
    ("GetRegistryItem", "registry get acme:camera"),
    ("CreateRegistryItem", "registry create weights --kind model"),
    ("UpdateRegistryItem", "registry update acme:camera --description new"),
    ("ListRegistryItems", "registry list"),
    ("DeleteRegistryItem", "registry delete acme:camera"),
    ("CreateModule", "module create lidar"),
    ("UpdateModule", "module update acme:camera --description new"),
    ("UploadModuleFile", "module upload acme:camera object.json --version 1.0.0 --platform linux/arm64"),
    ("GetModule", "module get acme:camera"),
    ("ListModules", "module list"),
    ("CreateKey", "key create builder"),
    ("DeleteKey", "key delete 0a000000-0000-4000-8000-000000000008"),
    ("RotateKey", "key rotate 0a000000-0000-4000-8000-000000000008"),
    ("ListKeys", "key list"),
    ("CreateKeyFromExistingKeyAuthorizations", "key copy 0a000000-0000-4000-8000-000000000008"),
    ("GetAppContent", "app content acme camera"),
    ("GetAppBranding", "app branding acme camera"),
    ("GetPackage", "module file acme:camera"),
    ("ListPackages", "registry files --item camera --kind module"),
    ("GetPartStatus", "machine status rover"),
    ("RetryUpdate", "machine retry-update rover"),
    ("GetPartCredentials", "part credentials rover"),
    ("ListAuditEvents", "audit list"),
];

/// "        unary GetRobot get_robot(app::GetRobotRequest) -> …" → "GetRobot"
fn operations() -> BTreeSet<&'static str> {
    let rows = TABLE.lines().filter_map(|line| {
        let mut words = line.trim().split(' ');
        let kind = words.next()?;
        let name = words.next().filter(|_| matches!(kind, "unary" | "stream" | "upload"))?;
        words.next()?.contains('(').then_some(name)
    });
    rows.collect()
}

#[test]
fn every_operation_of_the_server_has_a_command() {
    let operations = operations();
    assert!(operations.len() >= 90, "{} rows were read", operations.len());
    let desk = Desk::new();
    desk.file("object.json", "{\"a\": 1}");
    {
        let mut state = desk.fleet.state();
        state.lenient = true;
        state.registry.items.push(app::RegistryItem { item_id: "acme:camera".into(), ..Default::default() });
        state.registry.modules.push(app::Module { module_id: "acme:camera".into(), ..Default::default() });
        let about = app::ModuleFileInfo { version: "1.0.0".into(), platform: "any".into(), ..Default::default() };
        state.registry.uploaded = Some((about, b"content".to_vec()));
    }
    let mut missing = Vec::new();
    for operation in operations {
        if operation == "Authenticate" || OF_DEVICES.contains(&operation) {
            continue;
        }
        let Some((_, line)) = COMMANDS.iter().find(|(name, _)| *name == operation) else {
            missing.push(format!("{operation} has no command"));
            continue;
        };
        let before = desk.fleet.server.methods().len();
        let done = desk.run(line);
        let called = desk.fleet.server.methods().split_off(before);
        // What an answer without content means to a command is told elsewhere; that the command line is understood, here.
        if !called.iter().any(|method| method == operation) || done.exit == 2 {
            missing.push(format!("{operation}: `{line}` called {called:?}\n{}", done.err));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(desk.fleet.server.methods().iter().any(|method| method == "Authenticate"));
}

#[test]
fn any_operation_can_be_called_by_its_name() {
    let desk = Desk::new();
    let done = desk.run("call ListOrganizations");
    let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.exit, &told["organizations"][0]["id"]), (0, &ORGANIZATION.into()), "{}", done.err);
    let done = desk.run("call AppService/GetRobotPart {\"id\":\"0a000000-0000-4000-8000-000000000005\"}");
    let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.exit, &told["part"]["name"]), (0, &"rover-main".into()), "{}", done.err);
    desk.file("request.json", "{\"location_id\": \"0a000000-0000-4000-8000-000000000002\"}");
    assert_eq!(desk.run("call listrobots --file request.json").exit, 0);
    let done = desk.run_with("call ListRobots -", "{\"locationId\": \"0a000000-0000-4000-8000-000000000002\"}", &[]);
    assert!(done.out.contains("rover"), "{}", done.err);
    desk.fails("call ListRobots {\"locaton_id\":\"x\"}", 2, "locaton_id");
    desk.fails("call NoSuchThing", 2, "call --list");
    desk.fails("call TailRobotPartLogs", 2, "is a stream");
    desk.fails("call GetRobot --file none.json", 1, "none.json");
    let list = desk.run("call --list");
    assert!(list.out.contains("GetRobotPartRequest") && list.out.lines().count() > 90, "{}", list.out);
    // Without a key, too.
    assert_eq!(Desk::without_key().run("call").exit, 0);
}

#[test]
fn completion_and_manual_know_every_command() {
    let desk = Desk::without_key();
    for shell in ["bash", "zsh", "fish"] {
        let done = desk.run(&format!("completion {shell}"));
        assert_eq!(done.exit, 0, "{}", done.err);
        for word in ["organization", "make-main", "retry-update", "metadata"] {
            assert!(done.out.contains(word), "{shell}: {word}");
        }
    }
    let done = desk.run("man pages -o json");
    let told: serde_json::Value =
        serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}{}", done.out, done.err));
    assert!(told["pages"].as_u64().unwrap() >= 80, "{told}");
    let page = std::fs::read_to_string(desk.home.path().join("pages/platform-part-config-edit.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("EDITOR"), "{page}");
}

#[test]
fn a_download_is_continued_and_believed_by_its_digest_only() {
    let desk = Desk::new();
    let content = "0123456789".repeat(50);
    desk.file("module.tar.gz", &content);
    assert_eq!(desk.run("module create camera").exit, 0);
    let done = desk.run("module upload camera module.tar.gz --version 1.2.3 --platform any");
    assert_eq!(done.exit, 0, "{}", done.err);
    let ranges = || {
        let seen = desk.fleet.server.seen.lock().unwrap();
        let of = |request: &crate::server::Request| request.header("range").unwrap_or("-").to_owned();
        seen.iter().filter(|request| request.line.starts_with("GET ")).map(of).collect::<Vec<_>>()
    };
    let read = |name: &str| std::fs::read_to_string(desk.home.path().join(name)).ok();
    // The connection breaks every 200 bytes.
    desk.fleet.state().registry.breaks_after = Some(200);
    let done = desk.run("module download camera");
    assert_eq!(done.exit, 0, "{}", done.err);
    assert_eq!(read("camera.tar.gz").as_deref(), Some(&*content));
    assert_eq!(read("camera.tar.gz.partial"), None);
    assert_eq!(ranges(), ["-", "bytes=200-", "bytes=400-"]);
    // A try of yesterday.
    desk.fleet.state().registry.breaks_after = None;
    desk.file("mine.partial", &content[..123]);
    let done = desk.run("module download camera --to mine");
    assert_eq!((done.exit, ranges().last().unwrap().as_str()), (0, "bytes=123-"), "{}", done.err);
    assert_eq!(read("mine").as_deref(), Some(&*content));
    // One that is whole already is not fetched at all.
    let before = ranges().len();
    desk.file("whole.partial", &content);
    assert_eq!(desk.run("module download camera --to whole").exit, 0);
    assert_eq!((ranges().len(), read("whole").as_deref()), (before, Some(&*content)));
    // And one of another file is thrown away.
    desk.file("wrong.partial", "something else");
    desk.fails("module download camera --to wrong", 1, "was removed");
    assert_eq!((read("wrong"), read("wrong.partial")), (None, None));
    assert_eq!(desk.run("module download camera --to wrong").exit, 0);
    assert_eq!(read("wrong").as_deref(), Some(&*content));
    desk.fleet.state().registry.breaks_after = Some(0);
    desk.fails("module download camera --to nothing", 1, "nothing.partial");
    assert_eq!(read("nothing.partial"), None, "nothing came");
    // What came earlier stays for the next try.
    desk.file("some.partial", &content[..200]);
    desk.fails("module download camera --to some", 1, "some.partial");
    assert_eq!(read("some.partial").as_deref(), Some(&content[..200]));
}

#[test]
fn a_download_takes_the_place_that_a_person_means_or_none() {
    let desk = Desk::new();
    desk.file("module.tar.gz", "content");
    assert_eq!(desk.run("module create camera").exit, 0);
    let done = desk.run("module upload camera module.tar.gz --version 1.2.3 --platform any");
    assert_eq!(done.exit, 0, "{}", done.err);
    let read = |name: &str| std::fs::read_to_string(desk.home.path().join(name)).ok();
    let folder = |name: &str| std::fs::create_dir(desk.home.path().join(name)).unwrap();
    folder("modules");
    for into in ["modules", "modules/"] {
        let done = desk.run(&format!("module download camera --to {into}"));
        assert!(done.out.starts_with("modules/camera.tar.gz is here: 7 bytes"), "{} {}", done.out, done.err);
        assert_eq!(read("modules/camera.tar.gz").as_deref(), Some("content"), "{into}: again is harmless");
    }
    // What a person names is written over; what the server names takes no other file's place.
    desk.file("mine", "something else");
    assert_eq!(desk.run("module download camera --to mine").exit, 0);
    assert_eq!(read("mine").as_deref(), Some("content"));
    desk.file("camera.tar.gz", "something else");
    desk.fails("module download camera", 1, "camera.tar.gz: there is another file of this name: --to with its name");
    assert_eq!(read("camera.tar.gz").as_deref(), Some("something else"));
    assert_eq!(desk.run("module download camera --to camera.tar.gz").exit, 0);
    assert_eq!(read("camera.tar.gz").as_deref(), Some("content"));
    // Where there is no place for it, nothing is fetched.
    folder("blocked");
    folder("blocked/camera.tar.gz");
    desk.fails("module download camera --to blocked", 1, "blocked/camera.tar.gz: there is a folder of this name");
    desk.fails("module download camera --to nowhere/", 1, "No such file or directory");
    desk.fails("module download camera --to nowhere/..", 2, "is no name of a file");
    let left = std::fs::read_dir(desk.home.path().join("blocked")).unwrap().count();
    assert_eq!((left, read("blocked/camera.tar.gz.partial"), read("nowhere/.partial")), (1, None, None));
}
