//! The configuration files of a node's components. Pure: paths and names in, documents out.

use std::path::Path;

use serde_json::{Value, json};

/// The name of the node that all others stand beside.
pub(crate) const NAME: &str = "node";
/// The bridge that is the VLAN.
pub(crate) const VLAN: &str = "vlan100";
/// The container runtime's socket; `/run` is the machine's own.
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
/// The node that every testbed has. Its pods are the first /24 of the cluster's, which the controller manager gives
/// out first.
pub(crate) const FIRST: Member = Member {
    name: NAME,
    pods: "10.244.0.0/24",
};
/// The node that may stand beside it.
pub(crate) const SECOND: Member = Member {
    name: "node-2",
    pods: "10.244.1.0/24",
};

/// A node of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) pods: &'static str,
}
/// Where Debian puts the network plugins.
pub(crate) const PLUGINS: &str = "/usr/lib/cni";

/// containerd (configuration version 2). Nothing is pulled: images are imported.
pub(crate) fn containerd(volatile: &Path) -> String {
    let root = volatile.join("containerd");
    let plugins = volatile.join("cni/bin");
    let networks = volatile.join("cni/net.d");
    // A runtime without CAP_SYS_RESOURCE cannot lower oom scores: restrict_oom_score_adj.
    format!(
        r#"version = 2
root = {root:?}
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "testbed.invalid/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {plugins:?}
    conf_dir = {networks:?}
"#
    )
}

/// Multus, which calls `ptp` for the pod's own network and then what the pod's annotation names.
///
/// With `ptp` all traffic between pods is routed by the node, so NetworkPolicies meet every packet.
pub(crate) fn multus(volatile: &Path, kubeconfig: &Path, pods: &str) -> Value {
    json!({
        "cniVersion": "0.3.1",
        "name": "multus",
        "type": "multus",
        "kubeconfig": kubeconfig,
        "binDir": volatile.join("cni/bin"),
        "confDir": volatile.join("cni/net.d"),
        "cniDir": volatile.join("cni/multus"),
        "delegates": [{
            "cniVersion": "0.3.1",
            "name": "pods",
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": volatile.join("cni/addresses"),
                "ranges": [[{"subnet": pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

/// The kubelet.
pub(crate) fn kubelet(volatile: &Path, ca: &Path, cgroup: &str, resolv_conf: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "oomScoreAdj": 0,
        // A busy or full host must not evict the pods of a test.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": volatile.join("pod-logs"),
        "volumePluginDir": volatile.join("volume-plugins"),
        "resolvConf": resolv_conf,
        // Tests wait for pods: look often.
        "syncFrequency": "5s",
        "fileCheckFrequency": "0s",
        "httpCheckFrequency": "0s",
    })
}

/// kube-proxy. The conntrack settings are the host's: zero leaves them alone.
pub(crate) fn kube_proxy(node: &str, kubeconfig: &Path, pods: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": pods,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    })
}

/// The flags of kube-router: it enforces NetworkPolicies and nothing else.
pub(crate) fn kube_router(node: &str, kubeconfig: &Path, services: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={node}"),
        format!("--service-cluster-ip-range={services}"),
        "--run-firewall=true".to_owned(),
        "--run-router=false".to_owned(),
        "--run-service-proxy=false".to_owned(),
        "--iptables-sync-period=5s".to_owned(),
    ]
}
