//! Which calls of a device say that it is there.

use api::pb::platform::app::{
    agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
    v1::*,
};

use super::world::{Client, World};

#[tokio::test]
async fn each_of_a_devices_four_calls_is_a_sign_of_life_and_no_persons_is() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let id = || part.id.clone();
    let call = async |client: &Client, which: &str| match which {
        "Config" => {
            let request = ConfigRequest { id: id(), ..ConfigRequest::default() };
            let path = "/platform.app.v1.RobotService/Config";
            client.call::<_, ConfigResponse>(path, request).await.map(drop)
        }
        "Log" => {
            let request = LogRequest { id: id(), ..LogRequest::default() };
            client.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", request).await.map(drop)
        }
        "NeedsRestart" => {
            let path = "/platform.app.v1.RobotService/NeedsRestart";
            client.call::<_, NeedsRestartResponse>(path, NeedsRestartRequest { id: id() }).await.map(drop)
        }
        _ => {
            let request = DeviceAgentConfigRequest { id: id(), ..DeviceAgentConfigRequest::default() };
            let path = "/platform.app.agent.v1.AgentDeviceService/DeviceAgentConfig";
            client.call::<_, DeviceAgentConfigResponse>(path, request).await.map(drop)
        }
    };
    let last_access = async || {
        let got: GetRobotPartResponse =
            owner.client.app("GetRobotPart", GetRobotPartRequest { id: id() }).await.unwrap();
        got.part.unwrap().last_access.map_or(0, |at| at.seconds)
    };
    let now = || world.server.context.clock.now() / 1000;
    assert_eq!(last_access().await, 0, "never yet");
    for which in ["DeviceAgentConfig", "Config", "Log", "NeedsRestart"] {
        world.server.context.clock.push(60_000);
        let (before, known) = (now(), last_access().await);
        assert!(known < before, "{which}");
        call(&device, which).await.unwrap();
        assert!(last_access().await >= before, "{which} is one");
    }
    // A person who looks is nobody's sign of life.
    world.server.context.clock.push(60_000);
    let known = last_access().await;
    let _: GetRobotPartsResponse =
        owner.client.app("GetRobotParts", GetRobotPartsRequest { robot_id: part.robot.clone() }).await.unwrap();
    assert_eq!(last_access().await, known);
    world.end().await;
}
