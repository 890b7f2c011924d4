//! Tests of names of control groups and containers, on made-up trees.

use super::*;

const WEB: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const DB: &str = "0129999999abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn folders_of_containers_are_known() {
    for folder in [
        WEB.to_owned(),
        format!("docker-{WEB}.scope"),
        format!("cri-containerd-{WEB}.scope"),
        format!("libpod-{WEB}.scope"),
        format!("kubelet-pod:cri-containerd:{WEB}"),
    ] {
        assert_eq!(container_id(&folder), Some(WEB), "{folder}");
    }
    assert_eq!(container_id("lxc.payload.web"), Some("web"));
    assert_eq!(container_id("machine-web.scope"), Some("web"));
    for folder in [
        "user.slice",
        "machine-web",
        &WEB[1..],
        &format!("libpod-conmon-{WEB}.scope"),
    ] {
        assert_eq!(container_id(folder), None, "{folder}");
    }
}

#[test]
fn containers_are_found_in_the_paths_of_their_processes() {
    let tree = |id, root: &str| Hierarchy {
        id,
        root: root.into(),
    };
    let trees = [tree(0, "/sys/fs/cgroup"), tree(4, "/old/memory")];
    let texts = [
        format!("4:memory:/docker/{DB}\n0::/system.slice/docker-{WEB}.scope/init.scope\n"),
        format!("7:pids:/docker/{DB}\n0::/system.slice/docker-{WEB}.scope\n"),
        "0::/user.slice\nnonsense\n".to_owned(),
    ];
    let found = containers(&trees, texts.into_iter());
    let folders = |id: &str| -> Vec<(u32, String)> {
        let groups = found[id].iter();
        groups
            .map(|g| (g.tree, g.folder.display().to_string()))
            .collect()
    };
    assert_eq!(found.len(), 2);
    assert_eq!(
        folders(WEB),
        [(0, format!("/sys/fs/cgroup/system.slice/docker-{WEB}.scope"))]
    );
    assert_eq!(folders(DB), [(4, format!("/old/memory/docker/{DB}"))]);
    assert_eq!(matching("0123", found.keys()), [WEB]);
    assert_eq!(matching("012", found.keys()).len(), 2);
    assert!(matching("", found.keys()).is_empty() && matching("f", found.keys()).is_empty());
}

#[test]
fn names_come_from_files() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let config = format!(r#"{{"ID":"{WEB}","Name":"/web"}}"#);
    write(
        &format!("var/lib/docker/containers/{WEB}/config.v2.json"),
        &config,
    );
    write("var/lib/docker/containers/broken/config.v2.json", "{");
    let podman = format!(r#"[{{"id":"{DB}","names":["db","base"]}},{{}}]"#);
    write(
        "var/lib/containers/storage/overlay-containers/containers.json",
        &podman,
    );
    write(
        &format!("var/log/containers/pod-1_default_app-{WEB}.log"),
        "",
    );
    let names = names(root.path());
    let of: Vec<(&str, &str)> = names.iter().map(|(n, id)| (&**n, &**id)).collect();
    assert_eq!(
        of,
        [("base", DB), ("db", DB), ("pod-1/app", WEB), ("web", WEB)]
    );
    assert_eq!(label(DB, &names), "base");
    assert_eq!(label(WEB, &BTreeMap::new()), &WEB[..12]);
}

#[test]
fn groups_are_found_by_path_and_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().canonicalize().unwrap();
    let slice = path.join("system.slice");
    for service in ["web.service", "web2.service"] {
        std::fs::create_dir_all(slice.join(service)).unwrap();
    }
    std::fs::write(slice.join("web.service/cgroup.procs"), "1\n").unwrap();
    let trees = [Hierarchy { id: 0, root: path }];
    let web = slice.join("web.service");
    for text in [
        web.to_str().unwrap(),
        "/system.slice/web.service",
        "system.slice/web.service",
    ] {
        let found = by_path(text, &trees);
        assert_eq!(found[0].folder, web, "{text}");
        assert_eq!(occupied(found).unwrap().folder, web);
    }
    for text in ["web", "web.service", "system.slice/web"] {
        assert_eq!(by_end(text, &trees)[0].folder, web, "{text}");
    }
    assert!(by_end("we", &trees).is_empty() && by_path("/etc", &trees).is_empty());
    assert!(occupied(by_end("web2", &trees)).is_none());
    let said = no_group("wbe.service", &trees);
    assert!(
        said.contains("nearest are system.slice/web.service, "),
        "{said}"
    );
}

#[test]
fn wrong_names_are_refused() {
    for wrong in [
        cgroup("no-such-control-group"),
        container("no-such-container"),
    ] {
        let said = wrong.unwrap_err().to_string();
        assert!(
            said.contains("there is no such") || said.contains("not mounted"),
            "{said}"
        );
    }
}

#[test]
fn the_distance_of_texts_is_their_edits() {
    assert_eq!(distance("", "ab"), 2);
    assert_eq!(distance("wbe", "web"), 2);
    assert_eq!(distance("kitten", "sitting"), 3);
}
