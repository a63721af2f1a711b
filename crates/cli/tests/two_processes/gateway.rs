//! A gateway between a program that speaks HTTP and the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::network::Operators;
use jaguar::plan::Kit;
use serde_json::{Value, json};

use crate::operation::signal;
use crate::predictions::{Deployment, number};
use crate::process::{Process, jaguar};
use crate::{WATCHDOG, fails, tiny};

/// A gateway to the server, and the address that it says.
fn gateway(it: &Deployment, more: &[&str]) -> (Process, String) {
    let cache = it.folder.path("gateway");
    let mut command =
        jaguar(&["gateway", "--server", &it.server.address, "--listen", "127.0.0.1:0", "--cache", &cache]);
    command.args(more);
    let mut process = Process::start(command);
    let line = process.line_with("listening on http://", WATCHDOG);
    process.line_with("ready: ", WATCHDOG);
    let address = line.trim_start_matches("listening on http://").split('/').next().expect("an address");
    (process, address.to_owned())
}

/// The status and the JSON of an answer.
fn ask(address: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn programs_are_answered_as_predict_answers() {
    let mut it = Deployment::new("gateway", &[]);
    let drawing = it.folder.path("drawing.png");
    std::fs::write(&drawing, tiny::png()).unwrap();
    let alone = &it.ask("cache", &[&drawing])[0];
    let (process, address) = gateway(&it, &["--keep", "1"]);
    let (status, about) = ask(&address, "GET", "/v2/models/tiny", &Value::Null);
    assert_eq!(status, 200, "{about}");
    assert_eq!(about["inputs"][0]["shape"], json!([-1, 3, tiny::SIDE, tiny::SIDE]));
    let name = &about["inputs"][0]["name"];
    let picture = image::load_from_memory(&tiny::png()).unwrap().into_rgb8();
    let request = json!({ "inputs": [{
        "name": name, "datatype": "UINT8", "shape": [1, picture.height(), picture.width(), 3], "data": picture.as_raw(),
    }] });
    let (status, answer) = ask(&address, "POST", "/v2/models/tiny/infer", &request);
    assert_eq!(status, 200, "{answer}");
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let bound =
        2.0 * tiny::worst_error(&bundle.model, Kit::JAGUAR) / bundle.model.network.output.scales[0] + 1e-5;
    let (got, want) = (&answer["outputs"][0]["data"], &alone["outputs"][0]["values"]);
    let numbers = |list: &Value| -> Vec<f64> {
        list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let (got, want) = (numbers(got), numbers(want));
    assert_eq!((got.len(), want.len()), (tiny::CLASSES, tiny::CLASSES));
    for (got, want) in got.iter().zip(&want) {
        assert!((got - want).abs() <= bound, "{got} and {want} differ by more than {bound}");
    }
    let class = number(&answer, "outputs/2/data/0");
    assert_eq!(answer["outputs"][1]["data"], json!([format!("class-{class}")]));
    it.server.process.line_with("answered a kept query", WATCHDOG);
    signal(&process, "-TERM");
    assert!(process.finish(WATCHDOG).status.success());
    it.server.process.line_with("left", WATCHDOG);
}

#[test]
fn a_label_is_all_where_no_more_is_revealed() {
    let it = Deployment::new("gateway-label", &["--reveal", "label"]);
    let (_process, address) = gateway(&it, &["--keep", "0"]);
    let (_, about) = ask(&address, "GET", "/v2/models/tiny", &Value::Null);
    assert_eq!(about["properties"]["revealed"], "label");
    let (_, values) = tiny::tensor();
    let request = json!({ "inputs": [{
        "name": about["inputs"][0]["name"], "datatype": "FP32", "shape": [1, 3, tiny::SIDE, tiny::SIDE], "data": values,
    }] });
    let (status, answer) = ask(&address, "POST", "/v2/models/tiny/infer", &request);
    assert_eq!(status, 200, "{answer}");
    let names: Vec<&Value> = answer["outputs"].as_array().unwrap().iter().map(|o| &o["name"]).collect();
    assert_eq!(names, ["label", "class"]);
    assert_eq!(about["outputs"].as_array().unwrap().len(), 2);
}

/// Three pictures in queries of two are two queries, and each has its own answer.
#[test]
fn pictures_share_queries() {
    let it = Deployment::new("gateway-batch", &["--max-batch", "2"]);
    let (_process, address) = gateway(&it, &["--keep", "1", "--batch", "2"]);
    let (_, about) = ask(&address, "GET", "/v2/models/tiny", &Value::Null);
    let (_, values) = tiny::tensor();
    let other = vec![1.9; values.len()];
    let request = json!({ "inputs": [{
        "name": about["inputs"][0]["name"], "datatype": "FP32", "shape": [3, 3, tiny::SIDE, tiny::SIDE],
        "data": [values, other, values],
    }] });
    let (status, answer) = ask(&address, "POST", "/v2/models/tiny/infer", &request);
    assert_eq!(status, 200, "{answer}");
    let output = &answer["outputs"][0];
    assert_eq!(output["shape"], json!([3, tiny::CLASSES]));
    let data: Vec<f64> = output["data"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let rows: Vec<&[f64]> = data.chunks(tiny::CLASSES).collect();
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let bound = 2.0 * tiny::worst_error(&bundle.model, Kit::JAGUAR) / bundle.model.network.output.scales[0];
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart(rows[0], rows[2]) <= bound + 1e-5, "{rows:?}");
    assert!(apart(rows[0], rows[1]) > 2.0 * bound, "another picture: {rows:?}");
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in ["jaguar_gateway_inputs_total 3\n", "jaguar_gateway_queries_total 2\n"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn what_a_gateway_cannot_do_is_said() {
    fails(&["gateway", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "in the clear", "--allow-remote"]);
    fails(&["gateway", "--listen", "127.0.0.1"], &["127.0.0.1", "HOST:PORT"]);
    fails(&["gateway", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1"], &["127.0.0.1:1"]);
    fails(&["gateway", "--batch", "4", "--max-waiting", "2"], &["--max-waiting 2", "--batch 4"]);
}
