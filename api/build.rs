//! Compiles the wire contract without any system tool, and bakes in the vendor's name and the time.

use std::{
    env, fs,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// Every file of the contract; imports are found from these.
const FILES: [&str; 10] = [
    "google/rpc/status.proto",
    "platform/app/agent/v1/agent.proto",
    "platform/app/dataset/v1/dataset.proto",
    "platform/app/mltraining/v1/ml_training.proto",
    "platform/app/packages/v1/packages.proto",
    "platform/app/v1/app.proto",
    "platform/app/v1/robot.proto",
    "platform/fleet/v1/fleet.proto",
    "platform/provisioning/v1/provisioning.proto",
    "proto/rpc/v1/auth.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-env-changed=PLATFORM_BRAND");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    // Absolute: with a relative one, `proto/rpc/…` would be taken for a path inside this folder.
    let contract = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("proto");
    let descriptors = protox::compile(FILES, [contract])?;
    fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    prost_build::Config::new()
        .bytes([".platform.app.v1.UploadModuleFileRequest.file"])
        // So that a tool can find a message's descriptor.
        .enable_type_names()
        .service_generator(Box::new(Methods))
        .include_file("contract.rs")
        .compile_fds(descriptors)?;

    fs::write(out.join("brand.rs"), brand(&env::var("PLATFORM_BRAND").unwrap_or_else(|_| "platform".into()))?)?;
    let built = match env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds.parse()?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    fs::write(out.join("built.rs"), format!("{built}"))?;
    Ok(())
}

/// Writes one constant per operation, in a module named after its service, beside the messages of its package.
struct Methods;

impl prost_build::ServiceGenerator for Methods {
    fn generate(&mut self, service: prost_build::Service, code: &mut String) {
        let module = service.name.chars().enumerate().fold(String::new(), |mut name, (at, letter)| {
            if letter.is_uppercase() && at > 0 {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
            name
        });
        // `MLTrainingService` would become `m_l_training_service`.
        let module = module.replace("m_l_", "ml_");
        *code += &format!("pub mod {module} {{\n");
        for method in service.methods {
            let kind = match (method.client_streaming, method.server_streaming) {
                (false, false) => "Unary",
                (false, true) => "ServerStream",
                (true, false) => "ClientStream",
                (true, true) => unreachable!("{}: no operation of the contract streams both ways", method.proto_name),
            };
            let constant = method.name.to_uppercase();
            let path = format!("/{}.{}/{}", service.package, service.proto_name, method.proto_name);
            *code += &format!(
                "    pub const {constant}: crate::method::{kind}<super::{}, super::{}> = crate::method::{kind}::at({path:?});\n",
                method.input_type, method.output_type,
            );
        }
        *code += "}\n";
    }
}

/// The constants that carry the vendor's name, from that name.
fn brand(name: &str) -> Result<String, String> {
    let plain =
        !name.is_empty() && name.len() <= 16 && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !plain {
        return Err(format!("PLATFORM_BRAND is {name:?}: 1 to 16 lowercase letters and digits are allowed"));
    }
    let upper = name.to_ascii_uppercase();
    let rows = [
        ("NAME", "The vendor's name, lowercase.", name.to_owned()),
        ("AGENT", "Name of the agent's program and service.", format!("{name}-agent")),
        ("LAUNCHER", "Name of the program that chooses which agent version starts.", format!("{name}-launcher")),
        ("MACHINE_SERVER", "Name of the supervised program, as a product and as a file.", format!("{name}-server")),
        ("FLEET", "Name of the fleet server's program.", format!("{name}-fleet")),
        ("CREDENTIALS_FILE", "Where a device finds its identity.", format!("/etc/{name}.json")),
        ("DEFAULTS_FILE", "Where a manufacturer puts defaults.", format!("/etc/{name}-defaults.json")),
        ("ROOT_FOLDER", "Where a device keeps versions, state and queued logs.", format!("/opt/{name}")),
        ("ENV_PREFIX", "First part of every environment variable of ours.", upper.clone()),
        ("ENV_DEBUG", "Turns on debug logging of the agent.", format!("{upper}_AGENT_DEBUG")),
        (
            "ENV_WAIT",
            "Makes the agent check for updates before it starts the machine server.",
            format!("{upper}_AGENT_WAIT_FOR_UPDATE"),
        ),
        (
            "ENV_DEV_MODE",
            "Lets the agent run as an ordinary user and not as a service.",
            format!("{upper}_AGENT_DEVMODE"),
        ),
        (
            "ENV_FAST_START",
            "Set to 1, starts the machine server without waiting for an update check.",
            format!("{upper}_AGENT_FAST_START"),
        ),
        (
            "ENV_LAUNCHER",
            "Names the launcher that started an agent, for the hand-over to its successor.",
            format!("{upper}_AGENT_LAUNCHER"),
        ),
        ("ENV_SLOT", "Names the slot that the launcher started: a or b.", format!("{upper}_AGENT_SLOT")),
        (
            "ENV_LAUNCH_NOTE",
            "What the launcher has to tell people: why it fell back, or started with --safe.",
            format!("{upper}_AGENT_LAUNCH_NOTE"),
        ),
        (
            "ENV_HAND_OVER",
            "Why a hand-over came to nothing, for the agent that had begun it and starts anew.",
            format!("{upper}_AGENT_HAND_OVER"),
        ),
        ("ENV_API_KEY", "API key, for the command line and for the machine server.", format!("{upper}_API_KEY")),
        ("ENV_API_KEY_ID", "Id of the API key.", format!("{upper}_API_KEY_ID")),
        (
            "ENV_STATUS_URL",
            "Tells the machine server where it is expected to answer status questions.",
            format!("{upper}_SERVER_STATUS_URL"),
        ),
        ("HOTSPOT_PREFIX", "Default first part of the provisioning hotspot's name.", format!("{name}-setup")),
        (
            "HOTSPOT_PASSWORD",
            "Built-in password of the provisioning hotspot: known to everybody, a manufacturer sets another.",
            format!("{name}setup"),
        ),
        ("SERVER_VERSION_KEY", "Name of the machine server's version setting.", format!("{name}-server")),
        (
            "DISABLE_SERVER_KEY",
            "Name of the setting that switches the machine server off.",
            format!("disable_{name}_server"),
        ),
        ("SERVER_ENV_KEY", "Name of the machine server's environment setting.", format!("{name}_server_env")),
        (
            "SERVER_START_TIMEOUT_KEY",
            "Name of the machine server's start limit setting.",
            format!("{name}_server_start_timeout_minutes"),
        ),
    ];
    Ok(rows.map(|(constant, doc, value)| format!("/// {doc}\npub const {constant}: &str = {value:?};\n")).concat())
}
