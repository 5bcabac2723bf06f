//! The 35 permissions, as words on the wire and as bits here.

use std::fmt;

macro_rules! permissions {
    ($($name:ident = $word:literal,)*) => {
        /// One thing that can be allowed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Permission {
            $(#[doc = concat!("`", $word, "`")] $name,)*
        }

        impl Permission {
            /// Every permission, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As clients write it.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// From what clients write.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$name),)* _ => None }
            }
        }
    };
}

permissions! {
    ReadOrganization = "read_organization",
    WriteOrganization = "write_organization",
    ReadFragment = "read_fragment",
    WriteFragment = "write_fragment",
    ReadLocation = "read_location",
    WriteLocation = "write_location",
    ReadLocationSecret = "read_location_secret",
    ReadRobotSecret = "read_robot_secret",
    ReadRobot = "read_robot",
    ReadRobotConfig = "read_robot_config",
    ReadRobotLogs = "read_robot_logs",
    WriteRobot = "write_robot",
    ControlRobot = "control_robot",
    ReadOrganizationDataManagement = "read_organization_data_management",
    ReadLocationDataManagement = "read_location_data_management",
    ReadRobotDataManagement = "read_robot_data_management",
    WriteOrganizationDataManagement = "write_organization_data_management",
    WriteLocationDataManagement = "write_location_data_management",
    WriteRobotDataManagement = "write_robot_data_management",
    ReadRobotHistory = "read_robot_history",
    ReadMappingSessions = "read_mapping_sessions",
    CreateMaps = "create_maps",
    WritePrivateRegistryItem = "write_private_registry_item",
    WritePublicRegistryItem = "write_public_registry_item",
    ReadPrivateRegistryItem = "read_private_registry_item",
    TrainModels = "train_models",
    ReadPackages = "read_packages",
    WritePackages = "write_packages",
    DeletePackages = "delete_packages",
    ConfigureDatabaseUser = "configure_database_user",
    GetDatabaseConnection = "get_database_connection",
    CreateDataset = "create_dataset",
    ListDataset = "list_dataset",
    RenameDataset = "rename_dataset",
    DeleteDataset = "delete_dataset",
}

const _: () = assert!(Permission::ALL.len() <= 64, "a permission is a bit of a u64");

/// A set of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u64);

impl Permissions {
    /// Nothing at all.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self::of(Permission::ALL);

    /// These.
    pub const fn of(permissions: &[Permission]) -> Self {
        let mut bits = 0;
        let mut rest = permissions;
        while let [first, others @ ..] = rest {
            bits |= 1 << (*first as u8);
            rest = others;
        }
        Self(bits)
    }

    /// In either.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// In both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// In this and not in the other.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it is in here.
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & (1 << (permission as u8)) != 0
    }

    /// Whether everything in `other` is in here.
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in here.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Permission::ALL.iter().filter(|one| self.contains(**one)).map(|one| one.word())).finish()
    }
}
