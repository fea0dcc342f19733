//! Every name that others can see: labels, annotations, finalizers, objects, ports, environment, volumes.
//!
//! Upstream's names are kept as they are, because its documentation, its agents and people's dashboards key on them.
//! What is ours is additive. Condition types and reasons are in [`condition`], event reasons and actions in [`event`].

pub mod condition;
pub mod event;

/// API group of the custom resources.
pub const GROUP: &str = "spawnery.cloud";
/// API version of the custom resources.
pub const VERSION: &str = "v1alpha1";
/// Prefix of every label and annotation that is ours.
pub const PREFIX: &str = "spawnery.cloud/";

/// Taints that the node controller of Kubernetes keeps (`k8s.io/api/core/v1`, `well_known_taints.go`).
pub mod taint {
    /// The kubelet says that its node is not ready.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The kubelet says nothing.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
}

/// Label keys and the values that have a fixed meaning.
pub mod label {
    /// Marks what the operator made; the value is [`MANAGED_BY_VALUE`].
    pub const MANAGED_BY: &str = "spawnery.cloud/managed-by";
    /// The only value of [`MANAGED_BY`].
    pub const MANAGED_BY_VALUE: &str = "spawnery-operator";
    /// Name of the Network.
    pub const NETWORK: &str = "spawnery.cloud/network";
    /// Name of the ServerGroup or ProxyGroup.
    pub const GROUP: &str = "spawnery.cloud/group";
    /// Name of the Server; on server pods and their claims only.
    pub const SERVER: &str = "spawnery.cloud/server";
    /// [`ROLE_SERVER`] or [`ROLE_PROXY`]; on pods only.
    pub const ROLE: &str = "spawnery.cloud/role";
    /// Value of [`ROLE`] on pods that hold players.
    pub const ROLE_SERVER: &str = "server";
    /// Value of [`ROLE`] on pods that route players.
    pub const ROLE_PROXY: &str = "proxy";
    /// `"true"` while somebody is on the pod or nobody can say; absent otherwise.
    pub const OCCUPIED: &str = "spawnery.cloud/occupied";
    /// `"true"` once nobody can come in any more and the pod may go; final.
    pub const SEALED: &str = "spawnery.cloud/sealed";
    /// Value of [`OCCUPIED`] and [`SEALED`].
    pub const TRUE: &str = "true";
    /// 16 hex digits: what the pod was made from.
    pub const POD_HASH: &str = "spawnery.cloud/pod-hash";
    /// 16 hex digits: which forwarding secret the pod was made with; absent while the Network has none resolved.
    pub const FORWARDING_HASH: &str = "spawnery.cloud/forwarding-hash";

    /// [`TRUE`], as label and annotation, keeps AKS from editing a webhook registration.
    pub const ADMISSIONS_ENFORCER_DISABLED: &str = "admissions.enforcer/disabled";

    /// Which part of ours one of the operator's own pods is; unlike [`APP_COMPONENT`] it never changes, so Deployments
    /// select it.
    pub const PART: &str = "spawnery.cloud/part";
    /// Application label of the operator's own pods.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// The only value of [`APP_NAME`].
    pub const APP_NAME_VALUE: &str = "spawnery";
    /// Component label of the operator's own pods.
    pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
    /// Carried by exactly one pod, the leader; the agent Service and the NetworkPolicies select it.
    pub const COMPONENT_OPERATOR: &str = "operator";
    /// Component of reconciler replicas that do not lead.
    pub const COMPONENT_STANDBY: &str = "operator-standby";
    /// Component of webhook replicas.
    pub const COMPONENT_WEBHOOK: &str = "webhook";
    /// Component of extender replicas.
    pub const COMPONENT_EXTENDER: &str = "extender";
    /// Component of the second kube-scheduler.
    pub const COMPONENT_SCHEDULER: &str = "scheduler";

    /// On nodes, an integer: how many player slots the servers on it may have together.
    pub const PLAYER_BUDGET: &str = "spawnery.cloud/player-budget";

    /// Label that Kubernetes puts on every namespace; used in namespace selectors.
    pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
}

/// Annotation keys and the values that have a fixed meaning.
pub mod annotation {
    /// Why a pod was sealed: `Empty`, `Deadline` or `Override`. Written in one patch with the label.
    pub const SEALED_REASON: &str = "spawnery.cloud/sealed-reason";
    /// An eviction that was refused, JSON `{"time": RFC 3339, "requester": user name}`; the leader clears it.
    pub const EVICTION_REQUESTED: &str = "spawnery.cloud/eviction-requested";
    /// `"true"` lets an administrator do what is otherwise refused.
    pub const OVERRIDE: &str = "spawnery.cloud/override";
    /// Canonical JSON of the inputs that the pod was made from, at most [`super::POD_INPUTS_MAX_BYTES`].
    pub const POD_INPUTS: &str = "spawnery.cloud/pod-inputs";
    /// On groups: [`FALSE`] for an image without our agent, whose pods then get no pre-stop hook. Read when a pod is made.
    pub const PRE_STOP: &str = "spawnery.cloud/pre-stop";
    /// RFC 3339: since when a proxy pod is draining.
    pub const DRAINING_SINCE: &str = "spawnery.cloud/draining-since";
    /// Sorted comma-separated keys of the annotations that are ours on a proxy Service.
    pub const EXPOSE_ANNOTATIONS: &str = "spawnery.cloud/expose-annotations";
    /// Request on the TLS Secret: `start`, `drop-old` or `rollback`.
    pub const ROTATE_CA: &str = "spawnery.cloud/rotate-ca";
    /// Phase of a rotation on the TLS Secret: `distributing` or `switched`.
    pub const CA_ROTATION_PHASE: &str = "spawnery.cloud/ca-rotation-phase";
    /// RFC 3339: since when the rotation is in its phase.
    pub const CA_ROTATION_SINCE: &str = "spawnery.cloud/ca-rotation-since";
    /// Namespaces that hold a rotation up, at most ten names.
    pub const CA_ROTATION_BLOCKED_ON: &str = "spawnery.cloud/ca-rotation-blocked-on";
    /// Lasting record of a slot that was repaired or discarded.
    pub const CA_ROTATION_DISCARDED: &str = "spawnery.cloud/ca-rotation-discarded";

    /// Cluster autoscaler's hint: [`FALSE`] while occupied, [`TRUE`] while empty.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Karpenter's hint: a duration counted from the pod's start, or absent.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Value for yes.
    pub const TRUE: &str = "true";
    /// Value for no.
    pub const FALSE: &str = "false";

    /// Whether a view keeps the annotation: ours and the autoscalers', nothing else.
    pub fn is_watched(key: &str) -> bool {
        key.starts_with(super::PREFIX) || key == SAFE_TO_EVICT || key == DO_NOT_DISRUPT
    }
}

/// Largest accepted value of [`annotation::POD_INPUTS`], in bytes.
pub const POD_INPUTS_MAX_BYTES: usize = 8 * 1024;

/// Finalizers.
pub mod finalizer {
    /// On Servers: the pod is drained before the object goes. Upstream's.
    pub const DRAIN: &str = "spawnery.cloud/drain";
    /// On ServerGroups and ProxyGroups: their pods are drained before the group and its budget go.
    pub const GROUP: &str = "spawnery.cloud/group";
}

/// Ports, with their names in pods and Services.
pub mod port {
    /// Players, servers and proxies alike.
    pub const MINECRAFT: i32 = 25565;
    /// Name of [`MINECRAFT`].
    pub const MINECRAFT_NAME: &str = "minecraft";
    /// Readiness gate of proxies.
    pub const READY: i32 = 8081;
    /// Name of [`READY`].
    pub const READY_NAME: &str = "ready";
    /// Pre-stop hook of the agent, in server and proxy pods.
    pub const PRE_STOP: i32 = 8091;
    /// Path of the pre-stop hook; the query `graceSeconds` says how long the pod's grace is.
    pub const PRE_STOP_PATH: &str = "/v1/pre-stop";
    /// Agent channel of the operator.
    pub const AGENT: i32 = 9443;
    /// Name of [`AGENT`].
    pub const AGENT_NAME: &str = "agent";
    /// Webhook's HTTPS port, in pods.
    pub const WEBHOOK: i32 = 8443;
    /// Webhook's port on its Service.
    pub const WEBHOOK_SERVICE: i32 = 443;
    /// Name of the webhook's ports.
    pub const WEBHOOK_NAME: &str = "https";
    /// Extender's HTTPS port, in pods.
    pub const EXTENDER: i32 = 8443;
    /// Extender's port on its Service.
    pub const EXTENDER_SERVICE: i32 = 443;
    /// Name of the extender's ports.
    pub const EXTENDER_NAME: &str = "https";
    /// Operator's metrics.
    pub const METRICS: i32 = 8080;
    /// Operator's health.
    pub const HEALTH: i32 = 8081;
}

/// Environment variables of server and proxy pods.
pub mod env {
    /// Network name.
    pub const NETWORK: &str = "SPAWNERY_NETWORK";
    /// Group name.
    pub const GROUP: &str = "SPAWNERY_GROUP";
    /// Server name; server pods only.
    pub const SERVER: &str = "SPAWNERY_SERVER";
    /// Pod name; proxy pods only.
    pub const PROXY: &str = "SPAWNERY_PROXY";
    /// Players one proxy takes; proxy pods only.
    pub const PLAYER_LIMIT: &str = "SPAWNERY_PLAYER_LIMIT";
    /// Fallback groups in order, comma-separated; proxy pods only.
    pub const FALLBACK_GROUPS: &str = "SPAWNERY_FALLBACK_GROUPS";
    /// `HOST:PORT` of the operator's agent channel.
    pub const OPERATOR_ENDPOINT: &str = "SPAWNERY_OPERATOR_ENDPOINT";
}

/// Containers of server and proxy pods.
pub mod container {
    /// The game, in server pods.
    pub const SERVER: &str = "minecraft";
    /// The game, in proxy pods.
    pub const PROXY: &str = "velocity";
}

/// Volumes of server and proxy pods, and where they are mounted.
pub mod volume {
    /// World or working data.
    pub const DATA: &str = "data";
    /// Mount path of [`DATA`].
    pub const DATA_PATH: &str = "/data";
    /// Scratch space.
    pub const TMP: &str = "tmp";
    /// Mount path of [`TMP`].
    pub const TMP_PATH: &str = "/tmp";
    /// Token and CA bundle of the agent.
    pub const AGENT: &str = "spawnery-agent";
    /// Mount path of [`AGENT`].
    pub const AGENT_PATH: &str = "/var/run/spawnery";
    /// File with the ServiceAccount token, below [`AGENT_PATH`].
    pub const TOKEN_FILE: &str = "token";
    /// Rendered settings and the forwarding secret.
    pub const CONFIG: &str = "spawnery-config";
    /// Mount path of [`CONFIG`].
    pub const CONFIG_PATH: &str = "/etc/spawnery";
    /// File with the forwarding secret, below [`CONFIG_PATH`].
    pub const FORWARDING_FILE: &str = "forwarding.secret";
    /// The user's overlay.
    pub const OVERLAY: &str = "spawnery-config-overlay";
    /// Mount path of [`OVERLAY`].
    pub const OVERLAY_PATH: &str = "/etc/spawnery/overlay";
    /// Volume names that user mounts may not take.
    pub const RESERVED: [&str; 5] = [DATA, TMP, AGENT, CONFIG, OVERLAY];

    /// Audience of the agent's token.
    pub const TOKEN_AUDIENCE: &str = "spawnery-operator";
    /// Lifetime of the agent's token, in seconds.
    pub const TOKEN_EXPIRATION_SECONDS: i64 = 600;
}

/// Extended resources.
pub mod resource {
    /// Marks pods that a scheduler asks our extender about. No node has any of it: the scheduler is told to ignore it.
    pub const PLACEMENT: &str = "spawnery.cloud/placement";
}

/// Names of objects, and functions for those that carry another object's name.
pub mod object {
    /// Namespace of the operator unless told otherwise.
    pub const OPERATOR_NAMESPACE: &str = "spawnery-system";
    /// The operator's ServiceAccount, Service, Deployment, ClusterRole, Role and their bindings.
    pub const OPERATOR: &str = "spawnery-operator";
    /// The webhook's ServiceAccount, Service, Deployment, ClusterRole, Role and their bindings.
    pub const WEBHOOK: &str = "spawnery-webhook";
    /// The extender's ServiceAccount, Service, Deployment, ClusterRole, Role and their bindings.
    pub const EXTENDER: &str = "spawnery-extender";
    /// ServiceAccount, Deployment, ConfigMap and Lease of the second kube-scheduler.
    pub const SCHEDULER: &str = "spawnery-scheduler";
    /// `schedulerName` that the second kube-scheduler listens to.
    pub const SCHEDULER_NAME: &str = "spawnery";
    /// Secret of type `kubernetes.io/tls` with the CA and the leaf of the agent channel.
    pub const AGENT_TLS_SECRET: &str = "spawnery-agent-tls";
    /// Secret of type `kubernetes.io/tls` with the webhook's leaf.
    pub const WEBHOOK_TLS_SECRET: &str = "spawnery-webhook-tls";
    /// Secret of type `kubernetes.io/tls` with the extender's leaf.
    pub const EXTENDER_TLS_SECRET: &str = "spawnery-extender-tls";
    /// Lease of the leader.
    pub const LEASE: &str = "spawnery-operator.spawnery.cloud";
    /// The validating and the mutating webhook configuration.
    pub const WEBHOOK_CONFIGURATION: &str = "spawnery";
    /// ConfigMap with the CA bundle, in every game namespace.
    pub const CA_CONFIG_MAP: &str = "spawnery-ca";
    /// ServiceAccount of server pods.
    pub const SERVER_SERVICE_ACCOUNT: &str = "spawnery-server";
    /// ServiceAccount of proxy pods.
    pub const PROXY_SERVICE_ACCOUNT: &str = "spawnery-proxy";
    /// Role and RoleBinding that let the operator read forwarding secrets; applied by hand in game namespaces.
    pub const FORWARDING_READER: &str = "spawnery-forwarding-secret-reader";
    /// NetworkPolicy in front of the agent channel.
    pub const OPERATOR_POLICY: &str = "spawnery-operator-agent";

    /// Key of the CA certificate in Secrets and ConfigMaps.
    pub const CA_KEY: &str = "ca.crt";
    /// Key of the CA's private key in Secrets.
    pub const CA_PRIVATE_KEY: &str = "ca.key";
    /// Key of the leaf in Secrets.
    pub const LEAF_KEY: &str = "tls.crt";
    /// Key of the leaf's private key in Secrets.
    pub const LEAF_PRIVATE_KEY: &str = "tls.key";
    /// Key of the token that ends the path of eviction reviews, in the webhook's Secret.
    pub const EVICTION_TOKEN_KEY: &str = "eviction-token";
    /// Key of the forwarding secret in the Secret that a Network names.
    pub const FORWARDING_KEY: &str = "secret";
    /// Key of the settings in a group's ConfigMap.
    pub const CONFIG_KEY: &str = "config.yaml";

    /// ConfigMap of a ServerGroup.
    pub fn server_config(group: &str) -> String {
        format!("{group}-server-config")
    }
    /// ConfigMap of a ProxyGroup.
    pub fn proxy_config(group: &str) -> String {
        format!("{group}-proxy-config")
    }
    /// PodDisruptionBudget of a ServerGroup.
    pub fn server_pdb(group: &str) -> String {
        format!("{group}-server-pdb")
    }
    /// PodDisruptionBudget of a ProxyGroup.
    pub fn proxy_pdb(group: &str) -> String {
        format!("{group}-proxy-pdb")
    }
    /// PersistentVolumeClaim of a Server.
    pub fn claim(server: &str) -> String {
        format!("{server}-data")
    }
    /// NetworkPolicy of a Network.
    pub fn backends_policy(network: &str) -> String {
        format!("{network}-backends")
    }
    /// `HOST:PORT` of the agent channel as pods dial it.
    pub fn operator_endpoint(operator_namespace: &str) -> String {
        format!("{OPERATOR}.{operator_namespace}.svc:{}", super::port::AGENT)
    }
}

/// Field managers: one for each writer and purpose, so that a conflict says who meant what.
pub mod manager {
    /// Objects that the reconciler makes.
    pub const RECONCILER: &str = "spawnery-reconciler";
    /// Status of the custom resources.
    pub const STATUS: &str = "spawnery-reconciler-status";
    /// Occupied label and the autoscalers' annotations on pods.
    pub const OCCUPANCY: &str = "spawnery-reconciler-occupancy";
    /// Sealed label and its reason on pods.
    pub const SEAL: &str = "spawnery-reconciler-seal";
    /// Finalizers.
    pub const FINALIZERS: &str = "spawnery-reconciler-finalizers";
    /// Webhook configurations.
    pub const WEBHOOK_CONFIG: &str = "spawnery-reconciler-webhook-config";
    /// Component label on the operator's own pods.
    pub const LEADER: &str = "spawnery-reconciler-leader";
    /// Certificates.
    pub const CERTIFICATES: &str = "spawnery-reconciler-certificates";
    /// Eviction requests that the webhook records on pods.
    pub const EVICTION_RECORD: &str = "spawnery-webhook-eviction";
}

/// Characters of generated names: no vowels that spell words by accident, no look-alikes. Upstream's 31.
pub const NAME_ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";

/// `<group>-<4 characters>`, the name of an ephemeral Server or of a proxy pod; each random byte picks one character.
/// The name is a decision of the caller's randomness alone, so tests give the bytes.
pub fn generated_name(group: &str, random: [u8; 4]) -> String {
    let suffix = random.map(|byte| {
        let index = usize::from(byte) % NAME_ALPHABET.len();
        NAME_ALPHABET.get(index).copied().map_or('a', char::from)
    });
    format!("{group}-{}", String::from_iter(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_depends_on_the_bytes_alone() {
        assert_eq!(generated_name("lobby", [0, 1, 30, 31]), "lobby-ab9a");
        assert_eq!(generated_name("lobby", [255, 254, 7, 8]), "lobby-hghj");
    }

    #[test]
    fn every_byte_gives_a_character_of_the_alphabet() {
        for byte in 0..=u8::MAX {
            let name = generated_name("g", [byte; 4]);
            assert_eq!(name.len(), 6, "{name}");
            assert!(name.bytes().skip(2).all(|c| NAME_ALPHABET.contains(&c)), "{name}");
        }
    }

    #[test]
    fn views_keep_our_annotations_and_the_autoscalers() {
        assert!(annotation::is_watched(annotation::EVICTION_REQUESTED));
        assert!(annotation::is_watched(annotation::SAFE_TO_EVICT));
        assert!(annotation::is_watched(annotation::DO_NOT_DISRUPT));
        assert!(!annotation::is_watched("kubectl.kubernetes.io/last-applied-configuration"));
    }
}
