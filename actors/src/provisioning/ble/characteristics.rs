//! The one table of characteristics: name, what each shows or takes, and how that is written down.
//!
//! The first sixteen are those that existing phone apps know, byte for byte. Four of our own carry the authenticated
//! scheme (`channel`), five belong to Improv. Nothing here decides; a row says which part of a welcome is shown, or
//! which part of a visit is taken.

use board::bluetooth::{Allows, Characteristic, Service, Uuid, VALUE_BYTES_MAX};

use crate::provisioning::welcome::{Result as Outcome, Welcome};

/// Which service a characteristic belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Known to existing phone apps.
    Classic,
    /// Ours: the authenticated scheme.
    Channel,
    /// Improv.
    Improv,
}

/// The service of existing phone apps.
pub const CLASSIC: Uuid = Uuid(0x51d9_84c2_43bd_5228_a3ac_a3ec_a992_e8b3);
/// The service of the authenticated scheme, version 1.
pub const CHANNEL: Uuid = Uuid(0xec9d_7c1e_5ef8_5216_a465_482f_658a_9ade);
/// The service of Improv.
pub const IMPROV: Uuid = Uuid(0x0046_7768_6228_2272_4663_2774_7826_8000);
/// Service data of Improv in the advertisement.
pub const IMPROV_DATA: Uuid = Uuid::short(0x4677);

impl Group {
    /// Name of the service.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        match self {
            Group::Classic => CLASSIC,
            Group::Channel => CHANNEL,
            Group::Improv => IMPROV,
        }
    }
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The public RSA key: SubjectPublicKeyInfo in DER.
    PublicKey,
    /// One byte: bit 0 has an identity, bit 1 is online.
    Status,
    /// For each network one byte (bit 7: wants a password; the rest: signal 0 to 100), its name, and a NUL.
    Networks,
    /// What is wrong, and how the last attempt failed: sentences, separated by NUL.
    Errors,
    /// As the manufacturer says.
    Manufacturer,
    /// As the manufacturer says.
    Model,
    /// Fragment for machines made here.
    FragmentId,
    /// The agent's version.
    AgentVersion,
    /// What a phone needs to begin an authenticated conversation.
    Hello,
    /// What the device says in it.
    Answer,
    /// Improv: one byte.
    ImprovState,
    /// Improv: one byte.
    ImprovError,
    /// Improv: the answer to the last command.
    ImprovResult,
    /// Improv: one byte.
    ImprovCapabilities,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One value, sealed with the public key.
    Sealed(Value),
    /// The phone's half of an authenticated conversation.
    Begin,
    /// A message in it.
    Message,
    /// A command of Improv, whole or in pieces.
    ImprovCommand,
}

/// Values that are sealed one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Name of the network, any bytes.
    Ssid,
    /// Its password.
    Psk,
    /// Which part the device is.
    PartId,
    /// The part's secret.
    Secret,
    /// An API key instead: `{"id": "…", "key": "…"}`.
    ApiKey,
    /// Address of the fleet server.
    AppAddress,
    /// That was all.
    Exit,
    /// Whether phones may pair: `1`, `true`, `0`, `false`.
    UnlockPairing,
}

/// How many [`Value`]s there are.
pub(super) const VALUES: usize = 8;

/// Shown or taken; never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read, and told when it changes where `true`.
    Shows(Shows, bool),
    /// Written.
    Takes(Takes),
}

/// One characteristic.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As the documentation calls it.
    pub name: &'static str,
    /// Its name in the air.
    pub uuid: Uuid,
    /// Where it belongs.
    pub group: Group,
    /// What it is for.
    pub role: Role,
}

const fn sealed(name: &'static str, uuid: u128, value: Value) -> Row {
    Row { name, uuid: Uuid(uuid), group: Group::Classic, role: Role::Takes(Takes::Sealed(value)) }
}

const fn shown(name: &'static str, uuid: u128, shows: Shows) -> Row {
    Row { name, uuid: Uuid(uuid), group: Group::Classic, role: Role::Shows(shows, true) }
}

const fn other(name: &'static str, group: Group, uuid: u128, role: Role) -> Row {
    Row { name, uuid: Uuid(uuid), group, role }
}

/// All of them.
pub const TABLE: [Row; 25] = [
    sealed("ssid", 0x37a7_20ee_86e5_55a8_b876_d200_fb7e_4f72, Value::Ssid),
    sealed("psk", 0xcd5b_8fb9_4006_56e5_a78b_044c_f6ae_48cb, Value::Psk),
    sealed("id", 0xc2be_234e_1975_5e85_b97b_bb30_c3bf_43d2, Value::PartId),
    sealed("secret", 0xd002_9d11_a8c2_5231_8fcc_83de_6695_2f01, Value::Secret),
    sealed("api_key", 0xf30e_26d6_155c_5a24_bd7f_6b1a_40e4_63da, Value::ApiKey),
    sealed("app_address", 0x444e_e2b0_b3fa_5d74_bb35_f194_6421_88b3, Value::AppAddress),
    sealed("exit_provisioning", 0x10cd_57f1_01bb_5937_89fb_64cc_40be_53d2, Value::Exit),
    sealed("unlock_pairing", 0x96a4_bebb_a361_5c73_9d76_45a0_faa9_d4a0, Value::UnlockPairing),
    shown("pub_key", 0x70bc_8310_68ca_5011_9282_72f2_0129_3dfb, Shows::PublicKey),
    shown("status", 0xea8a_8689_548f_5941_829b_82ae_ff80_95b7, Shows::Status),
    shown("networks", 0x61eb_a4df_b901_502c_b278_fadf_9d52_802b, Shows::Networks),
    shown("errors", 0x75f6_4044_b604_5547_a723_7f86_1825_5ddc, Shows::Errors),
    shown("manufacturer", 0x49d3_4f00_cf76_55fa_9f8d_23f6_8361_36ab, Shows::Manufacturer),
    shown("model", 0xe7e1_ac15_fb59_54ab_8538_7200_8ad4_ee43, Shows::Model),
    shown("fragment_id", 0xd2ea_e9e8_30bc_5fdf_bd9f_bd4e_8a40_17d2, Shows::FragmentId),
    shown("agent_version", 0x6e16_4616_ee96_5835_b199_115d_dbcd_885f, Shows::AgentVersion),
    other("hello", Group::Channel, 0x2c4c_d38c_f321_5322_9cfb_53a6_eb9a_b017, Role::Shows(Shows::Hello, true)),
    other("begin", Group::Channel, 0x0080_4e93_5c8f_5ba4_85d7_1862_28a9_8bd2, Role::Takes(Takes::Begin)),
    other("message", Group::Channel, 0xc51a_10ec_1954_51b8_8686_1f3c_c7df_e5bc, Role::Takes(Takes::Message)),
    other("answer", Group::Channel, 0x47aa_1909_57a2_5971_9300_cfd5_12b1_7f83, Role::Shows(Shows::Answer, true)),
    other("state", Group::Improv, IMPROV.0 + 1, Role::Shows(Shows::ImprovState, true)),
    other("error", Group::Improv, IMPROV.0 + 2, Role::Shows(Shows::ImprovError, true)),
    other("command", Group::Improv, IMPROV.0 + 3, Role::Takes(Takes::ImprovCommand)),
    other("result", Group::Improv, IMPROV.0 + 4, Role::Shows(Shows::ImprovResult, true)),
    other("capabilities", Group::Improv, IMPROV.0 + 5, Role::Shows(Shows::ImprovCapabilities, false)),
];

/// The row of this name in the air.
#[must_use]
pub fn row(uuid: Uuid) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.uuid == uuid)
}

/// A service as the radio offers it.
#[must_use]
pub fn service(group: Group) -> Service {
    let characteristics = TABLE.iter().filter(|row| row.group == group).map(|row| Characteristic {
        uuid: row.uuid,
        allows: match row.role {
            Role::Shows(_, notify) => Allows { read: true, notify, ..Allows::default() },
            // Existing apps may write either way. What is wrong they read from `errors`, or from Improv's own error.
            Role::Takes(_) => {
                Allows { write: true, write_unanswered: row.group != Group::Channel, ..Allows::default() }
            }
        },
    });
    Service { uuid: group.uuid(), characteristics: characteristics.collect() }
}

/// The status byte.
#[must_use]
pub fn status(welcome: &Welcome) -> u8 {
    u8::from(welcome.has_identity) | (u8::from(welcome.online) << 1)
}

/// Networks as existing phone apps read them: as many as fit, strongest first. A name with a NUL in it cannot be shown.
#[must_use]
pub fn networks(welcome: &Welcome) -> Vec<u8> {
    let mut list = Vec::new();
    for seen in welcome.networks.iter().filter(|seen| !seen.ssid.bytes().contains(&0)) {
        let secured = u8::from(seen.security != board::network::Security::Open) << 7;
        if list.len() + seen.ssid.bytes().len() + 2 > VALUE_BYTES_MAX {
            break;
        }
        list.push(secured | seen.signal.min(100));
        list.extend(seen.ssid.bytes());
        list.push(0);
    }
    list
}

/// Sentences for a person: how the last attempt failed, what was mistyped, what is wrong with the device. As many whole
/// ones as fit.
#[must_use]
pub fn errors(welcome: &Welcome, mistyped: Option<&str>) -> Vec<u8> {
    let failed = welcome.attempt.as_ref().and_then(|attempt| match &attempt.result {
        Outcome::Failed(why) => Some(&**why),
        Outcome::Trying | Outcome::Joined { .. } => None,
    });
    let mut list = Vec::new();
    for sentence in mistyped.into_iter().chain(failed).chain(welcome.complaints.iter().map(|complaint| &**complaint)) {
        let separator = usize::from(!list.is_empty());
        if list.len() + separator + sentence.len() > VALUE_BYTES_MAX {
            break;
        }
        list.extend(std::iter::repeat_n(0, separator));
        list.extend(sentence.bytes().filter(|byte| *byte != 0));
    }
    list
}

/// A text, cut at a character where it is too long.
#[must_use]
pub fn text(text: &str) -> Vec<u8> {
    let end = (0..=text.len().min(VALUE_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.as_bytes().get(..end).unwrap_or_default().to_vec()
}
