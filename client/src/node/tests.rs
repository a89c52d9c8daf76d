use super::*;

fn refusal(node: &Node) -> String {
    node.target(None).expect_err("no target")
}

fn only_server(node: &Node) -> ServerAddress {
    match node.target(None) {
        Ok(Target::Server(server)) => server,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_made_from_what_is_at_hand() {
    let url = String::from("redis://app:hush@h:7000/1?protocol=resp3");
    let info: redis::ConnectionInfo = url.parse().expect("a URL");
    for node in [Node::from(url.as_str()), Node::from(&url), Node::from(url.clone()), Node::from(info)] {
        let ServerAddress { address, login } = only_server(&node);
        assert_eq!(address.to_string(), "h:7000");
        assert_eq!(login.user.as_deref(), Some("app"));
        assert_eq!(login.password.as_deref(), Some("hush"));
        assert_eq!((login.database, login.protocol), (1, Protocol::Resp3));
    }
}

#[test]
fn what_is_said_beside_the_url_goes_first() {
    let login = only_server(&Node::new("redis://a:b@h/1").login("u", "p").database(2).resp3()).login;
    assert_eq!((login.user.as_deref(), login.password.as_deref()), (Some("u"), Some("p")));
    assert_eq!((login.database, login.protocol), (2, Protocol::Resp3));
}

#[test]
fn shown_by_its_address_alone() {
    let cases = [
        ("redis://user:hush@h:7000/1", "h:7000"),
        ("redis://user:hush@[::1]", "[::1]:6379"),
        ("rediss://:hush@h:7000", "h:7000"),
        ("redis+unix:///run/r.sock?user=user&pass=hush", "/run/r.sock"),
        ("redis://user:hush@h/no-number", "an invalid address"),
        ("hush", "an invalid address"),
    ];
    for (url, shown) in cases {
        let node = Node::new(url).login("user", "hush");
        assert_eq!(node.to_string(), shown);
        assert_eq!(format!("{node:?}"), format!("Node({shown})"));
    }
}

#[test]
fn a_target_shows_no_secret_either() {
    let shown = format!("{:?}", Node::new("redis://user:hush@h/1").target(None));
    assert!(shown.contains("h:6379") && !shown.contains("hush") && !shown.contains("user"), "{shown}");
}

#[test]
fn a_bad_address_waits_until_it_is_asked_for() {
    let why = refusal(&Node::new("redis://:hush@h:port"));
    assert!(!why.contains("hush"), "{why}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_the_feature_tls_is_refused_by_name() {
    let why = refusal(&Node::new("rediss://h"));
    assert!(why.contains("feature `tls`"), "{why}");
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    /// Invalid certificates: the error shows which certificates the client loaded.
    fn bad() -> Tls {
        Tls::new().ca_pem("no certificate")
    }

    #[test]
    fn certificates_of_the_node_or_else_of_the_manager() {
        let good = Tls::new().ca_pem(authority());
        let node = Node::new("rediss://h");
        assert!(node.clone().tls(good.clone()).target(Some(&bad())).is_ok());
        assert!(node.clone().tls(bad()).target(Some(&good)).is_err());
        assert!(node.target(Some(&good)).is_ok());
        assert!(node.target(Some(&bad())).is_err());
    }

    #[test]
    fn a_plain_address_needs_none_and_gets_none() {
        assert!(Node::new("redis://h").target(Some(&bad())).is_ok(), "the manager's are for the others");
        for plain in ["redis://h", "redis+unix:///a.sock"] {
            let why = Node::new(plain).tls(Tls::new().ca_pem(authority())).target(None);
            assert!(why.is_err_and(|why| why.contains("rediss://")), "{plain}");
        }
    }

    /// A certificate authority made for this test; its private key is not stored.
    fn authority() -> &'static str {
        include_str!("tests/authority.pem")
    }
}

#[cfg(feature = "sentinel")]
mod sentinel {
    use super::*;

    #[test]
    fn the_sentinels_and_the_master_have_logins_of_their_own() {
        let node = Node::sentinel(["redis://:s@s1:26379", "redis://s2:26379"], "orders").login("app", "m");
        assert_eq!(node.to_string(), "sentinel orders of s1:26379,s2:26379");
        let Ok(Target::Watched(watched)) = node.database(4).target(None) else { panic!("no such target") };
        let passwords: Vec<_> = watched.sentinels.iter().map(|s| s.login.password.as_deref()).collect();
        assert_eq!(passwords, [Some("s"), None]);
        assert_eq!(watched.login.password.as_deref(), Some("m"));
        assert_eq!((watched.login.database, watched.master.as_str()), (4, "orders"));
    }

    #[test]
    fn masters_of_different_sentinels_may_have_one_name() {
        let nodes = ["redis://s1", "redis://s2", "redis://s3"].map(|url| Node::sentinel([url], "mymaster"));
        assert!(crate::LockManager::builder().nodes(nodes).build().is_ok());
        let nodes = ["redis://s1", "redis://s2", "redis://s1"].map(|url| Node::sentinel([url], "mymaster"));
        let twice = crate::LockManager::builder().nodes(nodes).build().map(drop);
        assert!(matches!(twice, Err(crate::Error::Config(_))), "{twice:?}");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let cases = [
            Node::sentinel([""; 0], "orders"),
            Node::sentinel(["redis://s1"], ""),
            Node::sentinel(["redis://s1", "rediss://s2"], "orders"),
            Node::sentinel(["redis://s1/3"], "orders"),
            Node::sentinel(["redis://s1", "hush"], "orders"),
        ];
        for node in cases {
            let why = refusal(&node);
            assert!(!why.contains("hush"), "{why}");
        }
    }
}
