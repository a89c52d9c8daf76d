# shellcheck shell=bash
# Checks the files that start nodes: docker/kubernetes, docker/compose.yml, docker/systemd, and the workflow of the
# public CI.
#
# Two Python packages bring the schemas, so the checks need no network after the first run: kubernetes-validate those of
# Kubernetes, check-jsonschema those of compose files and workflows. Each check must also reject a planted mistake.

: "${root:?lib/common.sh comes first}" "${target:?}"

kubernetes_validate="kubernetes-validate==1.37.0"
check_jsonschema="check-jsonschema==0.39.0"
# The oldest release with everything that the manifests use, and the newest release that the package knows.
kubernetes_versions=(1.29 1.37)

# check_manifests: fails if a checker rejects a file, or accepts a planted mistake.
check_manifests() {
    python_packages REDLOCK_MANIFEST_PACKAGES "$kubernetes_validate" "$check_jsonschema" ||
        die "The packages $kubernetes_validate and $check_jsonschema could not be fetched with pip." \
            "The gate checks docker/kubernetes with them and needs them once; later runs are offline."
    is_kubernetes docker/kubernetes/*.yaml || die "docker/kubernetes is not valid."
    must_reject is_kubernetes docker/kubernetes/nodes.yaml 's/^  replicas: 5$/  replicas: five/'
    must_reject is_kubernetes docker/kubernetes/nodes.yaml 's/^  serviceName:/  servicename:/'
    must_reject is_kubernetes docker/kubernetes/config.yaml 's/^kind: ConfigMap$/kind: Configuration/'

    is_compose docker/compose.yml || die "docker/compose.yml is not valid."
    must_reject is_compose docker/compose.yml 's/^  stop_grace_period:/  stop_grace_time:/'

    is_workflow .github/workflows/*.yml || die ".github/workflows is not valid."
    must_reject is_workflow .github/workflows/ci.yml 's/^    runs-on:/    run-on:/'

    if has systemd-analyze; then
        is_unit 'docker/systemd/redlock-node@.service' || die "docker/systemd/redlock-node@.service is not valid."
        must_reject is_unit 'docker/systemd/redlock-node@.service' 's/^TimeoutStopSec=/TimeoutStopSecs=/'
    else
        remind "systemd-analyze is not installed: the check of docker/systemd was skipped."
    fi
}

# must_reject check file expression: plants a mistake into a copy of the file with sed, and runs the check on the copy.
must_reject() {
    local check=$1 copy
    copy="$target/planted/$(basename "$2")"
    mkdir -p "$target/planted"
    sed "$3" "$2" >"$copy"
    if cmp --silent "$2" "$copy"; then
        die "The planted mistake no longer fits $2: $3"
    fi
    if "$check" "$copy" >/dev/null 2>&1; then
        die "A planted mistake in $2 was not detected: $3"
    fi
}

# is_kubernetes file...: whether all resources fit the schemas, without unknown fields. The program exits with 0 if it
# has no schema for a resource, and only warns.
is_kubernetes() {
    local findings code=0
    local -a versions=("${kubernetes_versions[@]/#/--kubernetes-version=}")
    findings=$(PYTHONPATH=$REDLOCK_MANIFEST_PACKAGES python3 -m kubernetes_validate --quiet --strict \
        "${versions[@]}" "$@" 2>&1) || code=$?
    if [ "$code" -ne 0 ] || [ -n "$findings" ]; then
        printf '%s\n' "$findings"
        return 1
    fi
}

is_compose() {
    has_schema vendor.compose-spec "$@"
}

is_workflow() {
    has_schema vendor.github-workflows "$@"
}

# has_schema name file...: whether files fit a schema that the package check-jsonschema contains.
has_schema() {
    local findings
    findings=$(PYTHONPATH=$REDLOCK_MANIFEST_PACKAGES python3 -m check_jsonschema --builtin-schema "$@" 2>&1) || {
        printf '%s\n' "$findings"
        return 1
    }
}

# is_unit file: whether systemd understands a unit. The program exits with 0 even if it ignores a setting, and may also
# complain about other units of this machine.
is_unit() {
    local findings code=0
    findings=$(systemd-analyze verify "$1" 2>&1) || code=$?
    findings=$(grep --fixed-strings "$(basename "$1" .service)" <<<"$findings") || true
    if [ "$code" -ne 0 ] || [ -n "$findings" ]; then
        printf '%s\n' "$findings"
        return 1
    fi
}
