//! Packages: registry items as devices ask for them, to fetch and run one version for their platform.

use std::cmp::{Ordering, Reverse};

use api::pb::platform::app::packages::v1::{
    FileInfo, GetPackageRequest, GetPackageResponse, ListPackagesRequest, ListPackagesResponse, Package, PackageInfo,
    PackageType,
};
use semver::Version;

use super::{
    input,
    registry_item::{known, missing, number, runnable, split},
    registry_list::covers,
};
use crate::{
    authn::Caller,
    authz::right,
    clock::timestamp,
    context::Context,
    downloads,
    refusal::Refusal,
    store::{
        DbError,
        registry::{self, Stored},
        registry_files::{self, File},
    },
};

/// The word for the newest version.
const LATEST: &str = "latest";

/// GetPackage: the file of one version for one platform; without a version or with "latest", of the newest. Without a
/// platform, the version's only file.
pub async fn get(context: &Context, caller: Caller, request: GetPackageRequest) -> Result<GetPackageResponse, Refusal> {
    known::<PackageType>("type", request.r#type.unwrap_or_default())?;
    let (stored, files) = of_item(context, &caller, &request.id).await?;
    if request.r#type.is_some_and(|kind| kind != 0 && i64::from(kind) != stored.kind) {
        return Err(missing(&request.id));
    }
    let file = choose(&files, &request.version, input::given(request.platform.as_deref()))?;
    let package = message(context, &stored, file, request.include_url.unwrap_or_default());
    Ok(GetPackageResponse { package: Some(package) })
}

/// An item with its files, for who may fetch them.
pub(crate) async fn of_item(context: &Context, caller: &Caller, id: &str) -> Result<(Stored, Vec<File>), Refusal> {
    let (owner, name) = split("id", id)?;
    let read = context.store.read::<_, DbError>(|tx| {
        let Some(stored) = registry::find(tx, &owner, &name)? else { return Ok(None) };
        let files = registry_files::of_item(tx, &stored.id)?;
        Ok(Some((stored, files)))
    });
    let (stored, files) = read.await?.ok_or_else(|| missing(id))?;
    match runnable(context, caller, &stored).await? {
        true => Ok((stored, files)),
        false => Err(missing(id)),
    }
}

/// ListPackages: what the organization has uploaded, every version and file of it.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListPackagesRequest,
) -> Result<ListPackagesResponse, Refusal> {
    let organization = request.organization_id.clone();
    if !context.authz.runs_packages_of(&caller, &organization).await? {
        context.authz.organization::<right::ReadPackages>(&caller, &organization).await?;
    }
    known::<PackageType>("type", request.r#type.unwrap_or_default())?;
    let with_url = request.include_url.unwrap_or_default();
    let read = context.store.scan::<_, DbError>(move |tx| {
        let mut items = registry::of_organization(tx, &organization)?;
        items.retain(|stored| {
            input::given(request.name.as_deref()).is_none_or(|name| name == stored.name)
                && request.r#type.is_none_or(|kind| kind == 0 || i64::from(kind) == stored.kind)
        });
        let version = input::given(request.version.as_deref());
        let mut read = Vec::with_capacity(items.len());
        for stored in items {
            let mut files = registry_files::of_item(tx, &stored.id)?;
            files.retain(|file| version.is_none_or(|version| version == file.version));
            read.push((stored, files));
        }
        Ok(read)
    });
    let mut packages = Vec::new();
    for (stored, files) in read.await? {
        packages.extend(files.iter().map(|file| message(context, &stored, file, with_url)));
    }
    Ok(ListPackagesResponse { packages })
}

/// The file of a version that runs on a platform. A finished version is newer than any that is not.
pub(crate) fn choose<'a>(files: &'a [File], version: &str, platform: Option<&str>) -> Result<&'a File, Refusal> {
    let fits = |file: &&File| platform.is_none_or(|platform| covers(&file.platform, platform));
    let version = match version {
        "" | LATEST => {
            let newest = files.iter().filter(fits).max_by(|one, other| newer(&one.version, &other.version));
            newest.map_or(LATEST, |file| &file.version)
        }
        exact => exact,
    };
    let mut found: Vec<&File> = files.iter().filter(|file| file.version == version).filter(fits).collect();
    // The one that was made for exactly this machine before those made for several.
    found.sort_by_key(|file| Reverse(file.platform.split('/').filter(|word| *word != "any").count()));
    match (platform, &found[..]) {
        (_, []) => Err(Refusal::not_found(
            "file of that version",
            &platform.map_or_else(|| version.to_owned(), |platform| format!("{version} for {platform}")),
        )),
        (None, [_, _, ..]) => {
            let platforms = found.iter().map(|file| &*file.platform).collect::<Vec<_>>().join(", ");
            Err(Refusal::invalid(
                "platform",
                format_args!("is missing: name one of {platforms}, there is a file for each"),
            ))
        }
        (_, [first, ..]) => Ok(first),
    }
}

fn newer(one: &str, other: &str) -> Ordering {
    let key = |text: &str| Version::parse(text).ok().map(|version| (version.pre.is_empty(), version));
    key(one).cmp(&key(other))
}

fn message(context: &Context, stored: &Stored, file: &File, with_url: bool) -> Package {
    let address = context.address.as_deref().unwrap_or_default();
    let path = downloads::path_of(stored, file);
    let info = PackageInfo {
        organization_id: stored.organization.clone(),
        name: stored.name.clone(),
        version: file.version.clone(),
        r#type: number(stored.kind),
        files: vec![FileInfo {
            name: downloads::file_name(stored, file),
            size: u64::try_from(file.bytes).unwrap_or_default(),
            is_directory: None,
        }],
        metadata: None,
        platform: Some(file.platform.clone()),
    };
    Package {
        info: Some(info),
        url: if with_url { format!("{address}{path}") } else { String::new() },
        created_on: Some(timestamp(file.uploaded_at)),
        checksum: file.digest.clone(),
        id: format!("{}/{}", stored.owner(), stored.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_meant() {
        let file = |version: &str, platform: &str| File {
            item: String::new(),
            version: version.into(),
            platform: platform.into(),
            platform_tags: String::new(),
            digest: String::new(),
            bytes: 1,
            uploaded_at: 0,
        };
        let files = [
            file("1.2.0", "linux/arm64"),
            file("1.10.0", "any"),
            file("1.10.0", "linux/amd64"),
            file("1.10.0", "linux/any"),
            file("2.0.0-rc.1", "linux/arm64"),
        ];
        let table = [
            // version  platform            the file
            ("", Some("linux/arm64"), Some(("1.10.0", "linux/any"))),
            ("latest", Some("linux/amd64"), Some(("1.10.0", "linux/amd64"))),
            ("latest", Some("darwin/arm64"), Some(("1.10.0", "any"))),
            ("1.2.0", Some("linux/arm64"), Some(("1.2.0", "linux/arm64"))),
            ("1.2.0", None, Some(("1.2.0", "linux/arm64"))),
            ("2.0.0-rc.1", Some("linux/arm64"), Some(("2.0.0-rc.1", "linux/arm64"))),
            ("1.2.0", Some("linux/amd64"), None),
            ("1.10.0", None, None),
            ("3.0.0", None, None),
        ];
        for (version, platform, expected) in table {
            let found = choose(&files, version, platform).ok().map(|file| (&*file.version, &*file.platform));
            assert_eq!(found, expected, "{version} {platform:?}");
        }
        assert!(choose(&[], "latest", None).unwrap_err().is_not_found());
    }
}
