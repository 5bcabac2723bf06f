//! Variables of the machine server: seen by it and its children, restarted for when it permits.

use serde_json::json;

use crate::world::{World, server};

fn with_environment(environment: &serde_json::Value) -> serde_json::Value {
    json!({"advanced_settings": {"platform_server_env": environment}})
}

#[test]
fn a_new_variable_restarts_the_server_which_sees_it_beside_the_agents_own() {
    let mut world = World::new(&[("1.0.0", &[])]);
    world.options.environment.push(("OF_THE_AGENT".into(), "inherited".into()));
    world.start_agent();
    world.until_ready();
    let first = world.server_pid();
    assert_eq!(world.page("/env/GREETING").unwrap().0, 404);

    world.configure(&with_environment(&json!({"GREETING": "hello world", "EMPTY": ""})));
    let second = world.until_other_than(first);
    for page in ["/env", "/child/env"] {
        assert_eq!(world.read(&format!("{page}/GREETING")), "hello world", "{page}");
        assert_eq!(world.read(&format!("{page}/EMPTY")), "", "{page}");
        assert_eq!(world.read(&format!("{page}/OF_THE_AGENT")), "inherited", "{page}");
    }

    world.configure(&with_environment(&json!({"EMPTY": ""})));
    let third = world.until_other_than(second);
    for page in ["/env", "/child/env"] {
        assert_eq!(world.page(&format!("{page}/GREETING")).unwrap().0, 404, "{page}: removed is removed");
        assert_eq!(world.read(&format!("{page}/EMPTY")), "", "{page}");
    }

    // Everything else restarts nothing.
    world.configure(&json!({
        "advanced_settings": {"platform_server_env": {"EMPTY": ""}, "debug": true, "platform_server_start_timeout_minutes": 7},
        "network_configuration": {"manufacturer": "Acme"},
        "system_configuration": {"os_auto_upgrade_type": "security"},
        "additional_networks": {"lab": {"type": "wifi", "ssid": "lab", "psk": "correct horse"}},
    }));
    world.until_checked();
    assert_eq!(world.server_pid(), third);
    assert_eq!(server(&world.status()).crashes, 0);
}

#[test]
fn a_refused_permission_delays_the_restart_until_it_is_granted() {
    let world = World::running(&[("1.0.0", &[])]);
    let first = world.server_pid();
    world.behave("refuse-restart", "true");
    world.configure(&with_environment(&json!({"GREETING": "later"})));
    world.until("a restart that waits", |status| server(status).restart_pending.contains("does not allow"));
    world.until_checked();
    assert_eq!(world.server_pid(), first);
    world.behave("refuse-restart", "false");
    world.until_other_than(first);
    assert_eq!(world.read("/env/GREETING"), "later");
    world.until("nothing that waits", |status| server(status).restart_pending.is_empty());
}
