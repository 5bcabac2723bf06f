//! The table: what a role gives, depending on where it was given and on what is asked about.
//!
//! Owner: everything of its resource and below. Operator: reads everything there except secrets, controls machines,
//! lists datasets, reads packages; writes nothing. A location's owner does not own the organization around it, and an
//! organization with which a location is shared works with the machines there but does not own the location.

use std::sync::Arc;

use super::{Permission, Permissions, Target};
use Permission::*;

/// What somebody may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything of and below the resource.
    Owner,
    /// Looks at everything, controls machines, changes nothing.
    Operator,
}

impl Role {
    /// As clients write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
        }
    }

    /// From what clients write.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "owner" => Some(Self::Owner),
            "operator" => Some(Self::Operator),
            _ => None,
        }
    }
}

/// What a role can be given on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// An organization.
    Organization,
    /// A location.
    Location,
    /// A machine; clients call it robot.
    Machine,
}

impl ResourceKind {
    /// As clients write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Location => "location",
            Self::Machine => "robot",
        }
    }

    /// From what clients write.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "organization" => Some(Self::Organization),
            "location" => Some(Self::Location),
            "robot" => Some(Self::Machine),
            _ => None,
        }
    }

    /// The same as a target.
    pub const fn target(self) -> Target {
        match self {
            Self::Organization => Target::Organization,
            Self::Location => Target::Location,
            Self::Machine => Target::Machine,
        }
    }
}

/// A role on a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What one may be there.
    pub role: Role,
    /// What `resource` is.
    pub kind: ResourceKind,
    /// Id of an organization, location or machine.
    pub resource: Arc<str>,
    /// The organization that gave it.
    pub organization: Arc<str>,
}

/// How a grant reaches the thing that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// It was given on the organization that owns the thing.
    Organization,
    /// It was given on another organization, with which a location above the thing is shared.
    SharedOrganization,
    /// It was given on a location above the thing, or on that location.
    Location,
    /// It was given on the machine.
    Machine,
}

/// What is decided for an organization as a whole.
const OF_ORGANIZATION: Permissions = Permissions::of(&[
    ReadOrganization,
    WriteOrganization,
    ReadFragment,
    WriteFragment,
    ReadOrganizationDataManagement,
    WriteOrganizationDataManagement,
    WritePrivateRegistryItem,
    WritePublicRegistryItem,
    ReadPrivateRegistryItem,
    TrainModels,
    ReadPackages,
    WritePackages,
    DeletePackages,
    ConfigureDatabaseUser,
    GetDatabaseConnection,
    CreateDataset,
    ListDataset,
    RenameDataset,
    DeleteDataset,
]);
/// What is decided for what an organization publishes.
const OF_REGISTRY_ITEM: Permissions = Permissions::of(&[
    WritePrivateRegistryItem,
    WritePublicRegistryItem,
    ReadPrivateRegistryItem,
    ReadPackages,
    WritePackages,
    DeletePackages,
]);
/// What is decided for a location.
const OF_LOCATION: Permissions = Permissions::of(&[
    ReadLocation,
    WriteLocation,
    ReadLocationSecret,
    ReadLocationDataManagement,
    WriteLocationDataManagement,
]);
/// What is decided for a machine and its parts.
const OF_MACHINE: Permissions = Permissions::of(&[
    ReadRobot,
    WriteRobot,
    ControlRobot,
    ReadRobotConfig,
    ReadRobotLogs,
    ReadRobotSecret,
    ReadRobotHistory,
    ReadRobotDataManagement,
    WriteRobotDataManagement,
    ReadMappingSessions,
    CreateMaps,
]);
/// What stays with the owner of a location when it is shared.
const NOT_SHARED: Permissions = Permissions::of(&[WriteLocation, ReadLocationSecret]);
/// What an operator may at most.
const OF_OPERATOR: Permissions = Permissions::of(&[
    ReadOrganization,
    ReadFragment,
    ReadLocation,
    ReadRobot,
    ReadRobotConfig,
    ReadRobotLogs,
    ControlRobot,
    ReadOrganizationDataManagement,
    ReadLocationDataManagement,
    ReadRobotDataManagement,
    ReadRobotHistory,
    ReadMappingSessions,
    ReadPrivateRegistryItem,
    ReadPackages,
    ListDataset,
]);

/// What `role`, reaching the thing at `level`, gives on a thing of kind `on`; nothing where it cannot reach one.
pub fn policy(role: Role, level: Level, on: Target) -> Permissions {
    let of_role = match role {
        Role::Owner => Permissions::ALL,
        Role::Operator => OF_OPERATOR,
    };
    let of_level = match (level, on) {
        (Level::Organization, _) => Permissions::ALL,
        // Roles reach down, never up: a location's does nothing to the organization around it.
        (_, Target::Organization | Target::Fragment | Target::RegistryItem) => Permissions::NONE,
        (Level::Machine, Target::Location) => Permissions::NONE,
        (Level::SharedOrganization, _) => OF_LOCATION.with(OF_MACHINE).without(NOT_SHARED),
        (Level::Location, _) => OF_LOCATION.with(OF_MACHINE),
        (Level::Machine, Target::Machine | Target::Part) => OF_MACHINE,
    };
    // Asking for a machine's permission on a location asks for it on all machines there.
    let meaningful = match on {
        Target::Organization => OF_ORGANIZATION.with(OF_LOCATION).with(OF_MACHINE),
        Target::Fragment => Permissions::of(&[ReadFragment, WriteFragment]),
        Target::RegistryItem => OF_REGISTRY_ITEM,
        Target::Location => OF_LOCATION.with(OF_MACHINE),
        Target::Machine | Target::Part => OF_MACHINE,
    };
    of_role.and(of_level).and(meaningful)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_is_decided_somewhere_and_only_there() {
        let parts = [OF_ORGANIZATION, OF_LOCATION, OF_MACHINE];
        assert_eq!(parts.into_iter().fold(Permissions::NONE, Permissions::with), Permissions::ALL);
        for (n, one) in parts.iter().enumerate() {
            for other in &parts[n + 1..] {
                assert!(one.and(*other).is_empty());
            }
        }
    }
}
