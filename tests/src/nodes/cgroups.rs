//! The control groups of nodes, below our own, so that whatever bounds us bounds them too.
//!
//! In version 1 each controller has a tree of its own; a node gets a group in each. In version 2 there is one tree, in which
//! a group with processes cannot give controllers to its children: a node's own processes are in a child of the node's group.

use crate::broom::{Broom, Waste};
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// What pods need to be limited and counted by. In version 1 further ones come along.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// One tree of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    /// As `mount -o` takes it: `cpu,cpuacct`, `name=systemd`. Empty in version 2.
    pub(super) controllers: String,
    /// Our own group in it.
    pub(super) group: PathBuf,
}

/// The trees that this machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trees {
    /// One for each controller.
    V1(Vec<Tree>),
    /// One for all.
    V2(Tree),
}

impl Trees {
    /// Looks at where this process is, and for the groups that nodes' groups can be in.
    ///
    /// # Errors
    /// When a controller that pods need cannot be had.
    pub(super) fn usable() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("could not read {path}"));
        let mut trees = Self::parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
        if let Self::V2(tree) = &mut trees {
            tree.group = parent_in_v2(&tree.group)?;
        }
        Ok(trees)
    }

    /// Reads `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`) and `/proc/self/mountinfo`.
    fn parse(own: &str, mounts: &str) -> Result<Self> {
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let mut one = Vec::new();
        let mut two = None;
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let Some(group) = mounts.iter().find_map(|mount| mount.group(controllers, path)) else { continue };
            let tree = Tree { controllers: controllers.to_owned(), group };
            if controllers.is_empty() {
                two = Some(tree);
            } else {
                one.push(tree);
            }
        }
        if let (true, Some(tree)) = (one.is_empty(), two) {
            return Ok(Self::V2(tree));
        }
        let has =
            |name: &&str| one.iter().any(|tree| tree.controllers.split(',').any(|controller| controller == *name));
        let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !has(name)).collect();
        ensure!(missing.is_empty(), "no control groups for {}", missing.join(", "));
        Ok(Self::V1(one))
    }
}

/// A mounted tree of groups.
struct Mount<'a> {
    /// What of the tree is mounted; not all of it in a container.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Reads a line of mountinfo: `ID PARENT DEVICE ROOT POINT OPTIONS [TAG].. - KIND SOURCE SUPER_OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        let (root, point, kind) = (before.next()?, before.next()?, after.next()?);
        kind.starts_with("cgroup").then_some(Self { root, point, kind, options: after.nth(1)? })
    }

    /// Where the group `path` of these controllers is, if it is in this mount.
    fn group(&self, controllers: &str, path: &str) -> Option<PathBuf> {
        let ours = if controllers.is_empty() {
            self.kind == "cgroup2"
        } else {
            let has = |name: &str| self.options.split(',').any(|option| option == name);
            self.kind == "cgroup" && controllers.split(',').all(has)
        };
        let inside = Path::new(path).strip_prefix(self.root).ok()?;
        ours.then(|| if inside.as_os_str().is_empty() { self.point.into() } else { Path::new(self.point).join(inside) })
    }
}

/// The groups of one cluster, removed when this is dropped and when our process ends.
#[derive(Debug)]
pub(super) struct Cgroups {
    trees: Trees,
    /// The cluster's group in each tree.
    tops: Vec<PathBuf>,
    _broom: Broom,
}

/// A node's groups.
#[derive(Debug, Clone)]
pub(super) struct NodeGroups {
    /// One in each tree: what the node takes for the whole tree.
    pub(super) tops: Vec<PathBuf>,
    /// Where the node's own processes are.
    pub(super) own: Vec<PathBuf>,
    /// The controllers of each tree in version 1, as `mount -o` takes them; `v2` in version 2.
    pub(super) kinds: String,
}

impl NodeGroups {
    /// Makes those that are not there: a crash takes all but the topmost away.
    pub(super) fn make(&self) -> Result<()> {
        let mut groups = self.own.iter();
        groups.try_for_each(|group| {
            std::fs::create_dir_all(group).with_context(|| format!("could not make {}", group.display()))
        })
    }

    /// Removes all groups of the node's pods, if nothing runs on the node.
    pub(super) fn clear(&self) -> Result<()> {
        self.tops.iter().try_for_each(|group| clear(group))
    }
}

/// Removes all groups below this one, if nothing runs in it or in them.
fn clear(group: &Path) -> Result<()> {
    for entry in std::fs::read_dir(group).with_context(|| format!("could not read {}", group.display()))? {
        let path = entry.context("could not read a control group")?.path();
        if path.is_dir() {
            clear(&path)?;
            std::fs::remove_dir(&path).with_context(|| format!("something runs in {}", path.display()))?;
        }
    }
    let processes = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    ensure!(processes.is_empty(), "{} holds {}", group.display(), processes.trim().replace('\n', ", "));
    Ok(())
}

impl Cgroups {
    /// Makes the groups of a cluster. `name` is nobody else's.
    ///
    /// # Errors
    /// When groups cannot be made, or in version 2 not with the controllers that pods need.
    pub(super) fn create(name: &str) -> Result<Self> {
        let trees = Trees::usable()?;
        let tops: Vec<PathBuf> = match &trees {
            Trees::V1(trees) => trees.iter().map(|tree| tree.group.join(name)).collect(),
            Trees::V2(tree) => vec![tree.group.join(name)],
        };
        // Before the groups: whoever ends between the two leaves nothing.
        let broom = Broom::start(Waste::ControlGroups, &tops)?;
        for top in &tops {
            make(top, &trees)?;
            if let Trees::V2(_) = &trees {
                give(top)?;
            }
        }
        Ok(Self { trees, tops, _broom: broom })
    }

    /// Makes the groups of a node.
    pub(super) fn node(&self, name: &str) -> Result<NodeGroups> {
        let tops: Vec<PathBuf> = self.tops.iter().map(|top| top.join(name)).collect();
        for top in &tops {
            make(top, &self.trees)?;
        }
        Ok(match &self.trees {
            Trees::V1(trees) => {
                let kinds = trees.iter().map(|tree| tree.controllers.as_str()).collect::<Vec<_>>().join(" ");
                NodeGroups { own: tops.clone(), tops, kinds }
            }
            // A process in the node's topmost group would keep it from giving controllers to pods.
            Trees::V2(_) => {
                let own = tops.iter().map(|top| top.join("daemons")).collect();
                NodeGroups { own, tops, kinds: "v2".to_owned() }
            }
        })
    }
}

/// A group that can give its children what they need: ours if it does so already, or else the root, which may hold processes
/// all the same.
fn parent_in_v2(own: &Path) -> Result<PathBuf> {
    let gives = |group: &Path| {
        let given = std::fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
        NEEDED.iter().all(|name| given.split_whitespace().any(|controller| controller == *name))
    };
    // The topmost folder that is a group: what is above the mount point is none.
    let is_group = |group: &&Path| group.join("cgroup.procs").exists();
    let top = own.ancestors().take_while(is_group).last().context("no control groups of version 2")?.to_owned();
    for group in [own, &top] {
        if gives(group) {
            return Ok(group.to_owned());
        }
    }
    for group in [own, &top] {
        if give(group).is_ok() && gives(group) {
            return Ok(group.to_owned());
        }
    }
    bail!(
        "neither {} nor {} can give control groups {}: processes must be moved out of the latter first",
        own.display(),
        top.display(),
        NEEDED.join(", ")
    )
}

fn make(group: &Path, trees: &Trees) -> Result<()> {
    std::fs::create_dir_all(group).with_context(|| format!("could not make control group {}", group.display()))?;
    if let Trees::V2(_) = trees {
        return Ok(());
    }
    let parent = group.parent().context("a control group without a parent")?;
    // A new cpuset has neither processors nor memory, and nobody may join it like that.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(value) = std::fs::read(parent.join(file)) else { return Ok(()) };
        let written = std::fs::write(group.join(file), value);
        written.with_context(|| format!("could not write {file} of {}", group.display()))?;
    }
    std::fs::write(group.join("cgroup.clone_children"), "1").context("could not set cgroup.clone_children")
}

/// Gives what pods need to the children of a group of version 2.
fn give(group: &Path) -> Result<()> {
    let all = NEEDED.map(|name| format!("+{name}")).join(" ");
    let written = std::fs::write(group.join("cgroup.subtree_control"), all);
    written.with_context(|| format!("could not give controllers to children of {}", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn tree(controllers: &str, group: &str) -> Tree {
        Tree { controllers: controllers.to_owned(), group: group.into() }
    }

    #[rstest]
    #[case::a_tree_for_each_controller(
        "9:name=systemd:/\n8:pids:/\n4:memory:/of/ours\n3:cpuset:/\n1:cpu,cpuacct:/\n0::/\n",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
         32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
         34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory\n\
         39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
         40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        Trees::V1(vec![
            tree("name=systemd", "/sys/fs/cgroup/systemd"),
            tree("pids", "/sys/fs/cgroup/pids"),
            tree("memory", "/sys/fs/cgroup/memory/of/ours"),
            tree("cpuset", "/sys/fs/cgroup/cpuset"),
            tree("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        ])
    )]
    #[case::a_container_sees_its_own_part(
        "4:memory:/docker/abc\n3:cpuset:/docker/abc\n2:pids:/docker/abc\n1:cpu:/docker/abc\n",
        "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
         34 31 0:31 /docker/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
         35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         39 31 0:36 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
        Trees::V1(vec![
            tree("memory", "/sys/fs/cgroup/memory"),
            tree("cpuset", "/sys/fs/cgroup/cpuset"),
            tree("pids", "/sys/fs/cgroup/pids"),
            tree("cpu", "/sys/fs/cgroup/cpu"),
        ])
    )]
    #[case::one_tree(
        "0::/user.slice/user-0.slice/session-1.scope\n",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        Trees::V2(tree("", "/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope"))
    )]
    fn finds_our_own_groups(#[case] own: &str, #[case] mounts: &str, #[case] expected: Trees) {
        assert_eq!(Trees::parse(own, mounts).unwrap(), expected);
    }

    #[test]
    fn says_what_is_missing() {
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let error = Trees::parse("4:memory:/\n", mounts).unwrap_err();
        assert_eq!(error.to_string(), "no control groups for cpu, cpuset, pids");
    }

    #[test]
    fn a_group_of_version_2_that_gives_controllers_already_is_the_parent() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("session.scope");
        std::fs::create_dir(&own).unwrap();
        for group in [root.path(), &own] {
            std::fs::write(group.join("cgroup.procs"), "").unwrap();
            std::fs::write(group.join("cgroup.subtree_control"), "").unwrap();
        }
        std::fs::write(root.path().join("cgroup.subtree_control"), "cpuset cpu io memory pids\n").unwrap();
        assert_eq!(parent_in_v2(&own).unwrap(), root.path());
        std::fs::write(own.join("cgroup.subtree_control"), "cpuset cpu memory pids\n").unwrap();
        assert_eq!(parent_in_v2(&own).unwrap(), own);
    }
}
