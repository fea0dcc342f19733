//! What an agent may announce in `Hello.capabilities`: extensions that the operator uses only with agents that name them.

/// Answers each directory message with a `DirectoryApplied` of its revision, after the counts that were true before it.
pub const DIRECTORY_REVISIONS: &str = "directory-revisions";
/// Answers `ReportNow` with a fresh count that carries the nonce, or with nothing when it cannot tell.
pub const REPORT_NOW: &str = "report-now";
/// Proxies: counts name every server that the proxy has a player on or on the way to.
pub const SERVER_OCCUPANCY: &str = "server-occupancy";
/// Carries out `Door` and answers `DoorApplied`.
pub const DOOR: &str = "door";
/// Redials when the operator has been silent for 15 s, so the operator must speak at least every 5 s.
pub const KEEP_ALIVE: &str = "keep-alive";
/// Holds the end of its pod up (a preStop hook) until it hears `Release`, so it must be told once the pod is sealed.
pub const RELEASE: &str = "release";

/// Every capability of this version of the protocol, in the order in which agents announce them.
pub const ALL: [&str; 6] = [DIRECTORY_REVISIONS, REPORT_NOW, SERVER_OCCUPANCY, DOOR, KEEP_ALIVE, RELEASE];
