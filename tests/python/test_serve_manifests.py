"""The Kubernetes manifests of examples/serving: fields that must be there, and arguments that penstock.serve has."""

import pathlib
import re

import pytest

import penstock.serve

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "serving"


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def check_pod(template, dockerfile):
    """Checks a pod of the image that a Dockerfile builds."""
    text = (FOLDER / dockerfile).read_text()
    (container,) = template["spec"]["containers"]
    assert f"-t {container['image']} ." in text
    assert set(container["resources"]) == {"requests", "limits"}
    exposed = set(map(int, re.search(r"^EXPOSE (.*)$", text, re.M)[1].split()))
    return {port["name"]: port["containerPort"] for port in container.get("ports", [])}, exposed


def test_the_ray_service_runs_the_application():
    (service,) = documents("ray/rayservice.yaml")
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService") and service["metadata"]["name"]
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    assert application["import_path"] == "penstock.serve:build" and application["route_prefix"] == "/"
    options = penstock.serve.Options(**application["args"])
    assert options.min_replicas < options.max_replicas
    assert f"COPY model.safetensors {options.model}\n" in (FOLDER / "ray/Dockerfile").read_text()
    cluster = service["spec"]["rayClusterConfig"]
    head = cluster["headGroupSpec"]
    ports, exposed = check_pod(head["template"], "ray/Dockerfile")
    assert head["rayStartParams"]["num-cpus"] == "0" and ports["serve"] == config["http_options"]["port"] in exposed
    (group,) = cluster["workerGroupSpecs"]
    check_pod(group["template"], "ray/Dockerfile")
    assert group["groupName"] and group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    (worker,) = group["template"]["spec"]["containers"]
    cpus = group["maxReplicas"] * int(worker["resources"]["limits"]["cpu"])
    assert options.max_replicas * options.threads + 0.1 * options.stores <= cpus


def test_the_deployment_of_triton_serves_what_its_service_names():
    deployment, service = documents("triton/deployment.yaml")
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    template, labels = deployment["spec"]["template"], deployment["spec"]["selector"]["matchLabels"]
    assert template["metadata"]["labels"] == labels == service["spec"]["selector"]
    ports, exposed = check_pod(template, "triton/Dockerfile")
    assert set(ports.values()) == exposed
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    assert service["spec"]["sessionAffinity"] == "ClientIP"  # a sequence stays with a pod
    (container,) = template["spec"]["containers"]
    assert {container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")} == {"/v2/health/ready", "/v2/health/live"}
