use super::*;

#[test]
fn a_peer_is_a_name_and_a_place() {
    let url = PeerSpec { place: PeerPlace::Url("http://127.0.0.1:8080".to_owned()) };
    assert_eq!("llama-server=http://127.0.0.1:8080/".parse(), Ok(url));
    let program = PeerSpec { place: PeerPlace::Program("/opt/a=b/llama-server".into()) };
    assert_eq!("llama-server=/opt/a=b/llama-server".parse(), Ok(program));
    for wrong in ["llama-server", "llama-server=", "other=/bin/x", "llama-server=https://x"] {
        assert!(wrong.parse::<PeerSpec>().is_err(), "{wrong}");
    }
}
