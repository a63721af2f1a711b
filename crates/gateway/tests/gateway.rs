//! A gateway in front of a server that is there, that dies, and that comes back; asked over HTTP and gRPC as other programs ask.

mod asking;
mod site;

use std::time::Duration;

use asking::{Reply, binary, get, grpc, infer, post, send};
use serde_json::{Value, json};
use site::{Site, close, input, logits_of};

/// Waits until it is so.
#[track_caller]
fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not {what}");
}

/// The server is there, and queries are prepared.
#[track_caller]
fn wait_ready(site: &Site) {
    until("ready", || get(site, "/v2/health/ready").status == 200);
}

/// An input waits for its answer.
#[track_caller]
fn wait_asked(site: &Site) {
    until("asked", || get(site, "/metrics").text().contains("jaguar_gateway_waiting_inputs 1\n"));
}

fn body(shape: &[i64], data: &[f32]) -> Value {
    json!({ "inputs": [{ "name": "input", "datatype": "FP32", "shape": shape, "data": data }] })
}

fn floats(reply: &Reply, name: &str) -> Vec<f32> {
    let outputs = reply.json()["outputs"].clone();
    let output = outputs.as_array().unwrap().iter().find(|output| output["name"] == name).unwrap().clone();
    output["data"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

#[test]
fn answers_are_the_networks_in_every_form() {
    let site = Site::new(2);
    wait_ready(&site);
    let (one, two) = (input(1), input(2));
    let reply = infer(&site, &body(&[1, 1, 4, 4], &one));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert_eq!(answer["model_name"], "small");
    close(&site, &floats(&reply, "output"), &one);
    let best = site::largest(&floats(&reply, "output"));
    assert_eq!(answer["outputs"][1]["data"], json!([format!("class {best}")]));
    assert_eq!(answer["outputs"][2]["data"], json!([best]));

    // Without the batch, in lists of lists, and two at once.
    let rows: Vec<&[f32]> = one.chunks(4).collect();
    let request = json!({ "id": "7", "inputs": [{ "name": "input", "datatype": "FP32", "shape": [1, 4, 4], "data": [rows] }] });
    let reply = infer(&site, &request);
    assert_eq!(reply.json()["id"], "7");
    close(&site, &floats(&reply, "output"), &one);
    let reply = infer(&site, &body(&[2, 1, 4, 4], &[&one[..], &two].concat()));
    let both = floats(&reply, "output");
    assert_eq!(reply.json()["outputs"][0]["shape"], json!([2, 3]));
    close(&site, &both[..3], &one);
    close(&site, &both[3..], &two);

    // Binary both ways.
    let request = json!({
        "inputs": [{ "name": "input", "datatype": "FP32", "shape": [1, 1, 4, 4], "parameters": { "binary_data_size": 64 } }],
        "outputs": [{ "name": "class" }, { "name": "output", "parameters": { "binary_data": true } }],
    });
    let bytes: Vec<u8> = two.iter().flat_map(|v| v.to_le_bytes()).collect();
    let reply = binary(&site, &request, &bytes);
    let (answer, behind) = reply.binary();
    assert_eq!(answer["outputs"][1]["parameters"], json!({ "binary_data_size": 12 }));
    assert_eq!(answer["outputs"].as_array().unwrap().len(), 2);
    close(&site, &logits_of(behind), &two);

    // gRPC: as the inputs come, so the outputs go.
    let message = grpc::infer("small", &[1, 1, 4, 4], &bytes);
    let reply = grpc::call(&site, "ModelInfer", &message);
    assert_eq!(reply.status, "0", "{}", reply.message);
    let raw = grpc::fields(&reply.body, 6);
    assert_eq!(raw.len(), 3);
    close(&site, &logits_of(&raw[0]), &two);
    assert_eq!(raw[2], (site::largest(&logits_of(&raw[0])) as i64).to_le_bytes());
    let reply = grpc::call(&site, "ModelMetadata", &grpc::text(1, "small"));
    assert_eq!(grpc::fields(&reply.body, 1), [b"small"]);
    assert!(grpc::fields(&reply.body, 6).iter().any(|p| p.windows(9).any(|w| w == b"protected")));
    for (method, message, status) in [
        ("ServerLive", Vec::new(), "0"),
        ("ServerReady", Vec::new(), "0"),
        ("ModelReady", grpc::text(1, "small"), "0"),
        ("ModelReady", grpc::text(1, "other"), "5"),
        ("RepositoryIndex", Vec::new(), "12"),
        ("ModelInfer", grpc::infer("small", &[1, 1, 4, 5], &bytes), "3"),
        ("ModelInfer", grpc::infer("other", &[1, 1, 4, 4], &bytes), "5"),
        ("ModelInfer", vec![0xff; 7], "3"),
    ] {
        let reply = grpc::call(&site, method, &message);
        assert_eq!(reply.status, status, "{method}: {}", reply.message);
        if matches!(method, "ServerLive" | "ServerReady") {
            assert_eq!(reply.body, [8, 1], "{method}");
        }
    }
    let text = get(&site, "/metrics").text();
    assert!(text.contains("jaguar_gateway_inputs_total 6"), "{text}");
    assert!(text.contains("jaguar_gateway_requests_total{protocol=\"grpc\",status=\"12\"} 1"), "{text}");
}

/// Pixels and picture files are preprocessed here, as `predict` does it.
#[test]
fn pictures_are_preprocessed() {
    let site = Site::new(1);
    let pixels: Vec<u8> = (0..2 * 48).map(|i| (i * 37 % 256) as u8).collect();
    let grey = |rgb: &[u8]| site.preprocessed(rgb, 4, 4);
    let ask = |data: Value| {
        let request = json!({ "inputs": [data], "outputs": [{ "name": "output" }] });
        let reply = infer(&site, &request);
        assert_eq!(reply.status, 200, "{}", reply.text());
        floats(&reply, "output")
    };
    let answer = ask(json!({ "name": "input", "datatype": "UINT8", "shape": [2, 4, 4, 3], "data": pixels }));
    close(&site, &answer[..3], &grey(&pixels[..48]));
    close(&site, &answer[3..], &grey(&pixels[48..]));
    // A PNM file is its pixels behind a line.
    let file = [b"P6 4 4 255\n", &pixels[..48]].concat();
    let text = asking::base64(&file);
    close(
        &site,
        &ask(json!({ "name": "input", "datatype": "BYTES", "shape": [1], "data": [text] })),
        &grey(&pixels[..48]),
    );
    let request = json!({
        "inputs": [{ "name": "input", "datatype": "BYTES", "shape": [1, 1], "parameters": { "binary_data_size": file.len() + 4 } }],
        "outputs": [{ "name": "output" }],
    });
    let reply = binary(&site, &request, &[&(file.len() as u32).to_le_bytes()[..], &file].concat());
    close(&site, &floats(&reply, "output"), &grey(&pixels[..48]));
}

#[test]
fn what_is_told_of_the_model() {
    let site = Site::new(1);
    let about = get(&site, "/v2/models/small").json();
    assert_eq!(about["inputs"], json!([{ "name": "input", "datatype": "FP32", "shape": [-1, 1, 4, 4] }]));
    let outputs = about["outputs"].as_array().unwrap();
    assert_eq!(outputs[0], json!({ "name": "output", "datatype": "FP32", "shape": [-1, 3] }));
    let version = about["versions"][0].as_str().unwrap();
    let properties = &about["properties"];
    assert!(properties["fingerprint"].as_str().unwrap().starts_with(version));
    assert_eq!(properties["protocol"], "jaguar");
    assert_eq!(properties["revealed"], "logits");
    assert!(properties["protected"].as_str().unwrap().contains("learns neither"));
    wait_ready(&site);
    for (path, status) in [
        ("/v2", 200),
        ("/v2/", 200),
        ("/v2/health/live", 200),
        ("/v2/models/small/ready", 200),
        (&format!("/v2/models/small/versions/{version}/ready"), 200),
        (&format!("/v2/models/small/versions/{version}"), 200),
        ("/v2/models/small/versions/1", 404),
        ("/v2/models/other", 404),
        ("/v2/models/other/ready", 404),
        ("/v1/models/small", 404),
        ("/", 404),
        ("/v2/models/small/infer", 405),
    ] {
        let reply = get(&site, path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert_eq!(reply.json()["error"].is_string(), status != 200, "{path}: {}", reply.text());
    }
    // KServe's client believes these words, and not the status alone.
    let said = |path: &str| get(&site, path).json();
    assert_eq!(said("/v2/health/live"), json!({ "live": true }));
    assert_eq!(said("/v2/health/ready"), json!({ "ready": true }));
    assert_eq!(said("/v2/models/small/ready"), json!({ "name": "small", "ready": true }));
    // Each path of the description is one that is known here.
    let description = get(&site, "/openapi.json").json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let path = path.replace("{name}", "small").replace("{version}", version);
        let reply = if methods.get("post").is_some() { infer_at(&site, &path) } else { get(&site, &path) };
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
}

fn infer_at(site: &Site, path: &str) -> Reply {
    post(site, path, &[], body(&[1, 1, 4, 4], &input(1)).to_string().as_bytes())
}

#[test]
fn what_cannot_be_answered_says_what_is_expected() {
    let site = Site::new(0);
    let data = input(1);
    let tensor = |name: &str, datatype: &str, shape: Value, data: Value| json!({ "inputs": [{ "name": name, "datatype": datatype, "shape": shape, "data": data }] });
    let numbers = json!(data);
    let seventeen = json!(vec![0.5; 17]);
    for (request, part) in [
        (tensor("input", "FP32", json!([1, 1, 4, 5]), numbers.clone()), "has 16 values in it, not 20"),
        (tensor("input", "FP32", json!([17]), seventeen), "[-1, 1, 4, 4] is expected"),
        (tensor("input", "FP32", json!([4, 4]), numbers.clone()), "network takes"),
        (tensor("input", "FP32", json!([0, 1, 4, 4]), json!([])), "[-1, 1, 4, 4] is expected"),
        (tensor("input", "FP32", json!([-1, 1, 4, 4]), numbers.clone()), "is no shape"),
        (tensor("input", "FP32", json!([i64::MAX, i64::MAX]), numbers.clone()), "is no shape"),
        (tensor("input", "FP64", json!([1, 1, 4, 4]), numbers.clone()), "FP32 (preprocessed)"),
        (tensor("other", "FP32", json!([1, 1, 4, 4]), numbers.clone()), "the model's is 'input'"),
        (tensor("input", "FP32", json!([1, 1, 4, 4]), json!(["a"])), "FP32 is numbers"),
        (tensor("input", "UINT8", json!([4, 4, 1]), json!(vec![0.5; 16])), "0 to 255"),
        (tensor("input", "UINT8", json!([4, 4, 1]), json!(vec![7; 16])), "[-1, height, width, 3]"),
        (tensor("input", "BYTES", json!([1]), json!(["%%"])), "is base64"),
        (tensor("input", "BYTES", json!([1]), json!(["AAAA"])), "neither an image"),
        (tensor("input", "BYTES", json!([2]), json!(["AAAA"])), "has 1 values in it, not 2"),
        (tensor("input", "FP32", json!([65, 1, 4, 4]), json!(vec![0.5; 65 * 16])), "a request may have 64"),
        (tensor("input", "FP32", json!([1, 1, 4, 4]), json!(vec![1e39; 16])), "finite"),
        (json!({ "inputs": [] }), "the model takes one"),
        (json!({}), "missing field `inputs`"),
        (json!({ "inputs": [{ "name": "input", "datatype": "FP32", "shape": [1, 1, 4, 4] }] }), "no data"),
        (
            json!({ "inputs": body(&[1, 1, 4, 4], &data)["inputs"], "outputs": [{ "name": "gone" }] }),
            "there are output, label, class",
        ),
    ] {
        let reply = infer(&site, &request);
        assert_eq!(reply.status, 400, "{request}: {}", reply.text());
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    let shape = json!([1, 1, 4, 4]);
    let of = |size: i64| json!({ "inputs": [{ "name": "input", "datatype": "FP32", "shape": shape, "parameters": { "binary_data_size": size } }] });
    for (request, bytes) in [(of(64), 60), (of(60), 64), (of(64), 68), (of(-1), 64), (of(63), 63)] {
        let reply = binary(&site, &request, &vec![0; bytes]);
        assert_eq!(reply.status, 400, "{request}, {bytes} bytes: {}", reply.text());
    }
    // The head, and what is around it.
    let text = body(&[1, 1, 4, 4], &data).to_string();
    let path = "/v2/models/small/infer";
    for (headers, status) in [
        (vec![("Inference-Header-Content-Length", "99999999")], 400),
        (vec![("Inference-Header-Content-Length", "x")], 400),
        (vec![("Content-Encoding", "gzip")], 415),
        (vec![("Origin", "https://www.example")], 403),
    ] {
        let reply = post(&site, path, &headers, text.as_bytes());
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.text());
    }
    let reply = send(&site, b"GET /v2 HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 403);
    let long = "x".repeat(1 << 20);
    let reply = send(&site, format!("GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n").as_bytes());
    assert_eq!(reply.status, 431);
    let most = jaguar_gateway::LONGEST;
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", most + 1);
    let reply = asking::send_half(&site, head.as_bytes());
    assert_eq!(reply.status, 413, "{}", reply.text());
    // It is as well as before.
    assert_eq!(infer_at(&site, path).status, 200);
}

#[test]
fn a_server_that_dies_is_missed_and_found_again() {
    let mut site = Site::new(1);
    wait_ready(&site);
    assert_eq!(infer_at(&site, "/v2/models/small/infer").status, 200);
    // In the middle of a query.
    site.shut();
    let address = site.address;
    let asking = std::thread::spawn(move || {
        let text = body(&[1, 1, 4, 4], &input(1)).to_string();
        asking::post_to(address, "/v2/models/small/infer", &[], text.as_bytes())
    });
    wait_asked(&site);
    site.kill();
    site.open();
    let reply = asking.join().unwrap();
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.header("retry-after").as_deref(), Some("5"));
    for (path, status) in [
        ("/v2/health/live", 200),
        ("/v2/health/ready", 503),
        ("/v2/models/small/ready", 503),
        ("/v2/models/small", 200),
    ] {
        let reply = get(&site, path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
    let reply = infer_at(&site, "/v2/models/small/infer");
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("the server is away"), "{}", reply.text());
    let reply = grpc::call(&site, "ModelInfer", &grpc::infer("small", &[1, 1, 4, 4], &[0; 64]));
    assert_eq!(reply.status, "14", "{}", reply.message);
    let version = |site: &Site| get(site, "/v2/models/small").json()["versions"][0].clone();
    let before = version(&site);
    site.serve_again();
    wait_ready(&site);
    assert_ne!(version(&site), before, "it is another model");
    let reply = infer_at(&site, "/v2/models/small/infer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(get(&site, "/metrics").text().contains("jaguar_gateway_breaks_total 1"));

    // While nobody asks.
    site.kill();
    until("away", || get(&site, "/v2/health/ready").status == 503);
    site.serve_again();
    wait_ready(&site);
}

#[test]
fn who_comes_when_the_line_is_full_is_told_to_come_back() {
    let site = Site::with(1, |options| {
        options.waiting = 1;
        options.patience = Duration::from_secs(1);
    });
    wait_ready(&site);
    site.shut();
    let address = site.address;
    let asking = std::thread::spawn(move || {
        let text = body(&[1, 1, 4, 4], &input(1)).to_string();
        asking::post_to(address, "/v2/models/small/infer", &[], text.as_bytes())
    });
    wait_asked(&site);
    let reply = infer_at(&site, "/v2/models/small/infer");
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("1 inputs wait already"), "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    // And who waits too long, too.
    let reply = asking.join().unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("no answer came within 1 s"), "{}", reply.text());
    site.open();
}

#[test]
fn addresses_of_other_machines_need_a_word() {
    let error = jaguar_gateway::listen("0.0.0.0:0", false).expect_err("it can be reached");
    assert!(error.to_string().contains("from other machines"), "{error}");
    jaguar_gateway::listen("0.0.0.0:0", true).unwrap();
    jaguar_gateway::listen("localhost:0", false).unwrap();
}
