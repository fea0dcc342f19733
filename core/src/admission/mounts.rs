//! User mounts against the volumes and paths that are ours.

use super::Finding;

/// One mount that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountFacts<'a> {
    /// Name of the mount, and of its volume.
    pub name: &'a str,
    /// Path in the container.
    pub path: &'a str,
}

/// What is ours in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved<'a> {
    /// Volume names.
    pub volumes: &'a [&'a str],
    /// Paths that nothing may be mounted at, below or above.
    pub trees: &'a [&'a str],
    /// Paths that nothing may be mounted at; below them is fine.
    pub paths: &'a [&'a str],
}

/// Mounts that would take a volume or hide a path of ours, and two that want one path.
pub fn mounts(mounts: &[MountFacts<'_>], reserved: &Reserved<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        if reserved.volumes.contains(&mount.name) {
            found.push(Finding::MountReservedVolume { name: mount.name.into(), reserved: reserved.volumes.join(", ") });
        }
        let path = cleaned(mount.path);
        if let Some(hidden) = hides(&path, reserved) {
            found.push(Finding::MountReservedPath {
                name: mount.name.into(),
                path: mount.path.into(),
                reserved: hidden.into(),
            });
        }
        if let Some(first) = mounts.iter().take(index).find(|other| cleaned(other.path) == path) {
            found.push(Finding::MountPathTwice {
                path: mount.path.into(),
                first: first.name.into(),
                second: mount.name.into(),
            });
        }
    }
    found
}

fn hides<'a>(path: &[&str], reserved: &Reserved<'a>) -> Option<&'a str> {
    let tree = reserved.trees.iter().find(|tree| {
        let tree = cleaned(tree);
        path.starts_with(&tree) || tree.starts_with(path)
    });
    tree.or_else(|| reserved.paths.iter().find(|exact| cleaned(exact) == path)).copied()
}

/// The path's segments as a kernel resolves them: empty ones and `.` are nothing, `..` takes one back.
fn cleaned(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const RESERVED: Reserved<'static> = Reserved {
        volumes: &["data", "tmp"],
        trees: &["/var/run/spawnery", "/etc/spawnery"],
        paths: &["/data", "/tmp"],
    };

    #[rstest]
    #[case::below_data("/data/plugins", true)]
    #[case::elsewhere("/opt/worlds", true)]
    #[case::neighbour("/etc/spawnery-extra", true)]
    #[case::data("/data", false)]
    #[case::data_with_slash("/data/", false)]
    #[case::tmp("//tmp", false)]
    #[case::tree("/etc/spawnery", false)]
    #[case::below_a_tree("/var/run/spawnery/x", false)]
    #[case::above_a_tree("/var/run", false)]
    #[case::root("/", false)]
    #[case::around_the_corner("/data/../etc/spawnery", false)]
    #[case::dots("/./etc/./spawnery", false)]
    #[case::above_root("/../../tmp", false)]
    fn paths(#[case] path: &str, #[case] want: bool) {
        assert_eq!(mounts(&[MountFacts { name: "m", path }], &RESERVED).is_empty(), want);
    }

    #[rstest]
    #[case::free("world", true)]
    #[case::ours("data", false)]
    fn volumes(#[case] name: &str, #[case] want: bool) {
        assert_eq!(mounts(&[MountFacts { name, path: "/opt/x" }], &RESERVED).is_empty(), want);
    }

    #[test]
    fn two_mounts_on_one_path_are_named() {
        let both = [MountFacts { name: "a", path: "/opt/x" }, MountFacts { name: "b", path: "/opt//x/" }];
        let want = Finding::MountPathTwice { path: "/opt//x/".into(), first: "a".into(), second: "b".into() };
        assert_eq!(mounts(&both, &RESERVED), [want]);
    }
}
