//! What a device is told to be.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_section_arrives_as_four_structs() {
    let world = World::new().await;
    let device = world.device().await;
    let empty = device.config().await.expect("answers");
    assert_eq!(empty.check_interval.map(|interval| interval.seconds), Some(5));
    assert_eq!((empty.advanced_settings, empty.network_configuration), (None, None));

    world
        .fragment(
            "site",
            ORGANIZATION,
            1,
            json!({"agent": {"network_configuration": {"user_idle_minutes": 3, "model": "site"}}}),
        )
        .await;
    world
        .configure(json!({
            "fragments": ["site"],
            "components": [{"name": "arm"}],
            "agent": {
                "version_control": {"platform-server": "1.0.0", "agent": 7},
                "advanced_settings": {"debug": true, "platform_server_start_timeout_minutes": 10},
                "network_configuration": {"model": "part"},
                "additional_networks": {"office": {"type": "wifi", "priority": 20}},
                "system_configuration": "not an object",
            },
        }))
        .await;
    let config = device.config().await.expect("answers");
    assert!(config.subsystem_configs_is_empty());
    let advanced = config.advanced_settings.expect("there");
    assert_eq!(number(&advanced, "platform_server_start_timeout_minutes"), Some(10.0));
    let Some(Kind::StructValue(versions)) = &advanced.fields["version_control"].kind else { panic!("no versions") };
    assert_eq!(versions.fields["platform-server"].kind, Some(Kind::StringValue("1.0.0".into())));
    assert_eq!(number(versions, "agent"), Some(7.0), "verbatim: the device complains, not we");
    let network = config.network_configuration.expect("there");
    assert_eq!(number(&network, "user_idle_minutes"), Some(3.0));
    assert_eq!(network.fields["model"].kind, Some(Kind::StringValue("part".into())));
    assert!(config.additional_networks.expect("there").fields.contains_key("office"));
    assert_eq!(config.system_configuration, None);
    world.stop().await;
}

trait NothingDeprecated {
    fn subsystem_configs_is_empty(&self) -> bool;
}

impl NothingDeprecated for DeviceAgentConfigResponse {
    fn subsystem_configs_is_empty(&self) -> bool {
        self.subsystem_configs.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_heartbeat_asks_the_database_nothing() {
    let world = World::new().await;
    let device = world.device().await;
    world.configure(json!({"agent": {"advanced_settings": {"debug": true}}})).await;
    let first = device.config().await.expect("answers");
    let counted = || {
        let counted = world.server.context.store.state.counted();
        (counted.reads, counted.writes)
    };
    let (mut silent, mut others) = (0, 0);
    let most_are_silent = async {
        while silent < 100 || silent <= others {
            let before = counted();
            assert_eq!(device.config().await.expect("answers"), first);
            // The server itself looks twice a second whether another one told something, and writes down who is there.
            *if counted() == before { &mut silent } else { &mut others } += 1;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, most_are_silent).await;
    assert!(in_time.is_ok(), "{silent} calls asked nothing, and {others} did");
    // Another configuration is served by the very next call.
    world.configure(json!({"agent": {"advanced_settings": {"debug": false}}})).await;
    assert_ne!(device.config().await.expect("answers"), first);
    assert!(world.server.context.presence.last_access(PART, None, world.server.context.clock.now()).is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_hinted_at_as_they_are_released() {
    let world = World::new().await;
    let device = world.device().await;
    assert_eq!(device.config().await.expect("answers").platform_server_update_info, None);

    let key = SigningKey::generate().expect("a key");
    let keys = RoleKeys::new(1, [key.public()]);
    let expires = Expires::from_unix_seconds(4_000_000_000);
    let root = Root { version: 1, expires, root: keys.clone(), release: keys.clone(), channel: keys };
    let folder = Folder::of_data(&world.folder.path().join("data"));
    folder.add_root(sign::root(&root, &[&key]).expect("signs").as_bytes()).expect("added");
    let file = world.folder.path().join("artifact");
    std::fs::write(&file, b"bytes").expect("writes");
    let sha256: [u8; 32] = ring::digest::digest(&ring::digest::SHA256, b"bytes").as_ref().try_into().expect("32 bytes");
    let version: semver::Version = "1.1.0".parse().expect("a version");
    let artifacts = vec![Artifact::raw("linux/amd64", sha256, 5)];
    let product = brand::MACHINE_SERVER.to_owned();
    let release = Release { product: product.clone(), version: version.clone(), number: 2, expires, artifacts };
    let document = sign::release(&release, &[&key]).expect("signs");
    folder.add_release(document.as_bytes(), &product, &version, &[file]).expect("added");
    let products = vec![ChannelEntry { product, version, number: 2 }];
    let channel = Channel { name: "stable".into(), version: 1, expires, products };
    folder.add_channel(sign::channel(&channel, &[&key]).expect("signs").as_bytes(), "stable").expect("added");

    // As a device asks: again and again. The server looks at the folder once a second.
    let hinted = async {
        loop {
            if let Some(hint) = device.config().await.expect("answers").platform_server_update_info {
                return hint;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let hint = tokio::time::timeout(PATIENCE, hinted).await.expect("a hint");
    assert_eq!((hint.version.as_str(), hint.sha256.as_slice()), ("1.1.0", &sha256[..]));
    let path = hint.url.strip_prefix("http://fleet.test").expect("this server's public address");

    // And what is hinted at can be fetched, without a token.
    let answer =
        world.http(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nrange: bytes=1-3\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 206 ") && answer.ends_with("\r\n\r\nyte"), "{answer}");
    world.configure(json!({"agent": {"version_control": {"platform-server": "http://example.com/x"}}})).await;
    assert_eq!(device.config().await.expect("answers").platform_server_update_info, None, "a URL means itself");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_of_others_are_not_there_unless_public() {
    let world = World::new().await;
    let device = world.device().await;
    world.fragment("theirs", OTHER_ORGANIZATION, 1, json!({"agent": {"advanced_settings": {"a": 1}}})).await;
    world.fragment("public", OTHER_ORGANIZATION, 2, json!({"agent": {"advanced_settings": {"b": 1}}})).await;
    world.fragment("unlisted", OTHER_ORGANIZATION, 3, json!({"agent": {"advanced_settings": {"c": 1}}})).await;
    world.configure(json!({"fragments": ["theirs", "public", "unlisted"]})).await;
    let advanced = device.config().await.expect("answers").advanced_settings.expect("there");
    assert_eq!(advanced.fields.keys().map(String::as_str).collect::<Vec<_>>(), ["b", "c"]);
    let config = device.robot_config().await.expect("answers").config.expect("there");
    let complaints: Vec<_> = config.overwrite_fragment_status.iter().map(|status| status.error.as_str()).collect();
    assert_eq!(complaints, ["the part: there is no fragment theirs; it was left out"]);
    let request = GetPartStatusRequest { part_id: PART.into() };
    let status: GetPartStatusResponse =
        world.owner().await.call("platform.fleet.v1.AdminService/GetPartStatus", request).await.expect("answers");
    let complaint = &status.status.expect("there").complaints[0];
    assert_eq!((complaint.source.as_str(), complaint.path.as_str()), ("fragments", "the part"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_no_device_could_read_says_so_and_recovers() {
    let world = World::new().await;
    let device = world.device().await;
    let large = "x".repeat(600_000);
    world.fragment("large", ORGANIZATION, 1, json!({ "a": large })).await;
    world.configure(json!({"fragments": ["large"], "b": large})).await;
    for _ in 0..2 {
        let refused = device.config().await.expect_err("too large");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("a device reads at most"), "{}", refused.message());
    }
    world.configure(json!({"fragments": ["large"]})).await;
    assert!(device.config().await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_server_reads_the_whole_document() {
    let world = World::new().await;
    let device = world.device().await;
    world
        .configure(json!({
            "components": [{
                "name": "arm", "model": "acme:arm", "api": "rdk:component:arm", "depends_on": ["board"], "attributes": {"speed": 10},
                "frame": {"parent": "world", "translation": {"x": 1, "y": 2, "z": 3}, "orientation": {"type": "ov_degrees", "value": {"th": 90, "z": 1}}},
            }],
            "services": [{"name": "data", "log_configuration": {"level": "debug"}}],
            "modules": [{"name": "m", "executable_path": "/m", "env": {"A": "1"}}],
            "jobs": [{"name": "j", "schedule": "1h", "resource": "arm", "method": "Stop"}],
            "debug": true, "network": {"bind_address": ":8080"}, "processes": 7,
        }))
        .await;
    let config = device.robot_config().await.expect("answers").config.expect("there");
    let arm = &config.components[0];
    assert_eq!((arm.name.as_str(), arm.depends_on[0].as_str()), ("arm", "board"));
    assert_eq!(arm.attributes.as_ref().and_then(|attributes| number(attributes, "speed")), Some(10.0));
    assert_eq!(arm.frame.as_ref().and_then(|frame| frame.translation.as_ref()).map(|at| at.z), Some(3.0));
    assert_eq!((config.modules[0].path.as_str(), config.modules[0].env["A"].as_str()), ("/m", "1"));
    assert_eq!((config.jobs.len(), config.processes.len(), config.debug), (1, 0, Some(true)));
    assert_eq!(config.revision.len(), 64);
    let cloud = config.cloud.expect("there");
    assert_eq!(
        (cloud.machine_id.as_str(), cloud.location_id.as_str(), cloud.primary_org_id.as_str()),
        (MACHINE, LOCATION, ORGANIZATION)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_reaches_a_device_is_complained_about_for_it() {
    let world = World::new().await;
    let device = world.device().await;
    let owner = world.owner().await;
    let complaints = || async {
        let status = owner.status().await.status.unwrap_or_default();
        status.complaints.into_iter().map(|one| (one.path, one.source)).collect::<Vec<_>>()
    };
    let cloud = |path: &str| (path.to_owned(), "cloud".to_owned());
    world.configure(json!({"agent": 7, "components": []})).await;
    assert_eq!(complaints().await, [cloud("agent")]);
    world
        .configure(json!({"agent": {
            "advanced_settings": {"debug": 1},
            "system_configuration": "not an object",
            "sytem_configuration": {},
        }}))
        .await;
    let all = [cloud("advanced_settings.debug"), cloud("system_configuration"), cloud("sytem_configuration")];
    assert_eq!(complaints().await, all, "nobody else says it as long as the device is silent");
    // What reaches the device is the device's to judge.
    device.report(DeviceStatus::default()).await.expect("kept");
    assert_eq!(complaints().await, [cloud("system_configuration"), cloud("sytem_configuration")]);
    let said = Complaint { path: "system_configuration".into(), source: "cloud".into(), ..Complaint::default() };
    device.report(DeviceStatus { complaints: vec![said], ..DeviceStatus::default() }).await.expect("kept");
    assert_eq!(complaints().await, [cloud("system_configuration"), cloud("sytem_configuration")], "once each");
    world.configure(json!({"components": [], "advanced_settings": {"nobody": "reads this"}})).await;
    device.report(DeviceStatus::default()).await.expect("kept");
    assert_eq!(complaints().await, []);
    world.stop().await;
}
