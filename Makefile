# `make` alone lists what there is.

GO ?= go
# kubectl's library brings kustomize along, which can load Go plugins: for these the linker would keep all code there is, a third more.
tags := kustomize_disable_go_plugin_support
# What was compiled in one clone of this is not compiled again in another.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath -tags=$(tags))
# Nor twice in this one, with cgo and without: only the race detector needs it.
export CGO_ENABLED := 0
SHELL := bash
.SHELLFLAGS := -o pipefail -c

# The generators and linters, pinned in a module of their own. The first run of
# each builds it.
tool := $(GO) tool -modfile=hack/tools/go.mod

api_generated := api/v1alpha1
crd_generated := charts/sallyport/files/crds
chart_generated := charts/sallyport/files
policies_generated := $(chart_generated)/policies
reference_generated := docs

# Generates everything below the folder $(1), which has the layout of this one.
define generate_into
$(tool) controller-gen object:headerFile=hack/boilerplate.go.txt crd paths=./api/... \
	output:object:dir=$(1)/$(api_generated) output:crd:dir=$(1)/$(crd_generated) && \
$(GO) run ./charts/generate $(1)/$(chart_generated) && \
$(GO) run ./docs/generate $(1)/$(reference_generated)
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Write the generated code, the custom resource definitions and policies of the chart, and the references in docs
	rm -f $(crd_generated)/*.yaml
	$(call generate_into,.)

.PHONY: verify-generated
verify-generated: ## Fail if something generated is not current, and say what
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && \
	mkdir -p "$$fresh/$(api_generated)" "$$fresh/$(crd_generated)" && \
	$(call generate_into,"$$fresh") && \
	stale=0 && \
	for file in $$( { (cd "$$fresh" && find . -type f); find ./$(crd_generated) ./$(policies_generated) -type f; } | sort -u); do \
		cmp -s "$$file" "$$fresh/$$file" || { echo "not current: $${file#./}"; stale=1; }; \
	done && \
	if [ $$stale = 1 ]; then echo "run 'make generate'"; exit 1; fi

.PHONY: lint
lint verify-generated test-rego control-plane: export GOGC = 400
lint: golangci verify-generated ## Check style, the import rules, what is generated, and what make scan looks for
	$(scan)

.PHONY: golangci
golangci:
	$(tool) golangci-lint run ./...

# The program is linked as the tests build it.
.PHONY: test-rego
test-rego: ## Run the tests of the policies, at full coverage
	$(GO) run -ldflags "-s -w" ./cmd/sallyport policy test policies --coverage 100

# Without this, the race detector reports what the simulator of vCenter does.
export GORACE := suppressions="$(CURDIR)/hack/race.txt"

# Three packages at a time, because many wait for other processes. make lint has vet. No test is to end by this limit. Where there is
# -count=1: the test cache does not look at the programs that tests build and run.
gotest := env GOGC=400 $(GO) test -vet=off -timeout 60m -p 3

# What is accepted until some day is accepted for ever in make lint, which goes on to pass on an old commit.
scan = $(gotest) -count=1 -run '^(TestProgramIsScanned|TestSecrets)$$' ./hack/release

.PHONY: test
test: test-rego control-plane ## Run the tests: of the policies, and of Go, with -short
	$(gotest) -count=1 -short ./...

# The race detector sees nothing of the other processes that tests start, and needs a C compiler.
.PHONY: test-race
test-race: control-plane ## Run the tests of the packages whose goroutines share memory with the race detector, with -short
	env CGO_ENABLED=1 $(gotest) -race -short ./certs/... ./fairqueue/... ./reconcilers/... ./replicas/... ./webhooks/...

# Each of the walks has the machine by itself: they run API servers and several replicas, which have leases and deadlines.
.PHONY: test-all
test-all: test-rego control-plane ## Run all tests: whole tables, every fault at every request, random histories, loads (an hour)
	$(gotest) -count=1 $$($(GO) list ./... | grep -v /test/walks/)
	$(gotest) -p 1 -count=1 ./test/walks/...
	$(GO) run ./test/load/bench
	$(MAKE) test-race

# Its API server has the dependencies that it was released with, and shares nothing with other programs: it is compiled for some minutes.
.PHONY: test-old
test-old: ## Install Sallyport on an older Kubernetes, and have it refuse a request and carry out operations there
	$(GO) run ./test/support/env/build -old
	SALLYPORT_TEST_OLD=1 $(gotest) -short -count=1 -v -run '^(TestAPIServerIsOfTheVersionThatIsTested|TestOperations|TestWays)$$/^(supersede|finished)$$' ./test/walks/cluster

# CDI has the dependencies that it was released with, and is compiled for some minutes. The tests have the build tag cdi.
.PHONY: test-cdi
test-cdi: ## Have images imported, used and deleted by the real controllers of CDI and of CSI, which it builds first
	$(GO) run ./test/support/env/build -cdi
	$(gotest) -tags=$(tags),cdi -count=1 -v ./test/walks/cdi

# The libraries of Argo CD and Flux have dependencies of their own, in a go.mod beside the program that uses them; 20 minutes the first time.
.PHONY: test-gitops
test-gitops: control-plane ## Apply and compare Sallyport's objects with the libraries of Argo CD and Flux, which it builds first
	$(gotest) -tags=$(tags),gitops -count=1 -v -run '^TestGitOps$$' ./test/walks/vcenter

# KubeVirt has the dependencies that it was released with, and is compiled for some minutes. The tests have the build tag kubevirt.
.PHONY: test-kubevirt
test-kubevirt: ## Run machines with the real virt-api and virt-controller of KubeVirt, which it builds first
	$(GO) run ./test/support/env/build -kubevirt
	$(gotest) -short -tags=$(tags),kubevirt -count=1 -v ./test/walks/kubevirt
	$(gotest) -p 1 -short -tags=$(tags),kubevirt -count=1 -v -run KubeVirt ./cmd/demo ./test/properties/claims

# Machines of KubeVirt with the disks of CDI and CSI: both are needed.
.PHONY: test-kubevirt-disks
test-kubevirt-disks: ## Boot machines of KubeVirt from images that CDI imports, which it builds first
	$(GO) run ./test/support/env/build -kubevirt -cdi
	$(gotest) -tags=$(tags),kubevirt,cdi -count=1 -v ./test/walks/cdi -run TestKubeVirt

# It writes some 50,000 objects and statuses into an API server, which takes some minutes.
MACHINES ?= 10000
IMAGES ?= 500

.PHONY: test-scale
test-scale: control-plane ## Measure what a deletion of a machine and a reconcile of an image cost beside 10,000 machines and 500 images (MACHINES=5000 IMAGES=250)
	$(gotest) -count=1 -v -run '^TestScale$$' ./test/load/images -machines $(MACHINES) -images $(IMAGES)

# It needs the history of the repository: the program of that revision is built from it.
FROM ?= $(shell git describe --tags --abbrev=0 2>/dev/null)

.PHONY: test-upgrade
test-upgrade: control-plane ## Upgrade Sallyport from the last release, or from another revision, and roll back, while requests are made (FROM=REVISION)
	@[ -n "$(FROM)" ] || { echo "there is no release yet: make test-upgrade FROM=REVISION"; exit 1; }
	SALLYPORT_TEST_UPGRADE_FROM=$(FROM) $(gotest) -count=1 -v -run '^TestUpgrade$$|^TestStricterFieldsAreListed$$' ./test/walks/chart ./charts

# How long certificates of 20 seconds follow one another in test-cert-manager.
TIME ?= 5m

.PHONY: test-cert-manager
test-cert-manager: ## Have cert-manager's own controllers, which it builds first, issue and rotate the certificate while requests are made (TIME=1m for less than 15 minutes)
	$(GO) run ./test/support/env/build -cert-manager
	SALLYPORT_TEST_CERT_MANAGER=$(TIME) $(gotest) -count=1 -v -run '^TestCertManager$$' ./test/walks/chart

# The whole program is linked for two clones, and krew is compiled.
.PHONY: test-release
test-release: control-plane ## Compare two releases of this commit, install one, and have krew install the plugin, as before a release
	SALLYPORT_TEST_RELEASE=1 $(gotest) -count=1 -v ./hack/release

.PHONY: scan
scan: ## Look for secrets in the tree, and for vulnerabilities and licences of what is in the program
	SALLYPORT_TEST_RELEASE=1 $(scan) -v

.PHONY: update-vulnerabilities
update-vulnerabilities: ## Have make scan use the newest Go database of vulnerabilities
	$(GO) get -modfile=hack/tools/vulndb.mod golang.org/x/vulndb@latest
	$(GO) mod download -modfile=hack/tools/vulndb.mod golang.org/x/vulndb

.PHONY: test-faults
test-faults: ## Take the API server, etcd, the leader and both replicas away while requests are made through two API servers (5 minutes)
	SALLYPORT_TEST_CERT_MANAGER=$(TIME) $(gotest) -count=1 -v -run '^TestFaults$$' ./test/walks/chart

# Go fuzzes one target at a time. Inputs that reach something new are made smaller in ten runs, and not for a minute each as Go would have it.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target, each for a minute (FUZZTIME=10m for longer)
	@grep -roH --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's|/[^/]*:func | |' | sort | while read -r package target; do \
		echo "$$package $$target" && \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package" </dev/null || exit 1; \
	done

.PHONY: demo
demo: export CGO_ENABLED = 0
demo: ## Show Sallyport on a local control plane and a simulated vCenter (RUNTIME=kubevirt: on KubeVirt; ALL=1 shows more, SCRIPT=1 ends with a verdict)
	$(GO) run ./cmd/demo/build $(if $(filter 1,$(ALL)),--all) $(if $(filter 1,$(SCRIPT)),--script) $(if $(RUNTIME),--runtime $(RUNTIME))

.PHONY: demo-binary
demo-binary: export CGO_ENABLED = 0
demo-binary: ## Build the demo as bin/sallyport-demo, one static program that needs neither a clone nor, if a control plane is found, Go
	$(GO) build -buildvcs=false -ldflags "-s -w" -o bin/sallyport-demo ./cmd/demo

# What it compares with is built from a module of its own. The race detector and other work on the machine make it worthless.
.PHONY: bench
bench: ## Measure what a decision costs, against a webhook that does nothing, OPA, CEL and Gatekeeper's framework; fail over test/load/bench/budgets (DOCS=1: write the table into docs/architecture.md)
	cd test/load/bench/gatekeeper && $(GO) build -o ../../../../bin/bench-gatekeeper .
	$(GO) run ./test/load/bench --gatekeeper bin/bench-gatekeeper $(if $(filter 1,$(DOCS)),--docs docs/architecture.md)

.PHONY: build
build: ## Build bin/sallyport without symbol tables, and link it as the plugin bin/kubectl-sallyport and what completes its command lines
	$(GO) build -ldflags "-s -w" -o bin/ ./cmd/sallyport
	ln -sf sallyport bin/kubectl-sallyport
	ln -sf sallyport bin/kubectl_complete-sallyport

# The version that is built. PUSH is the registry that it is pushed to, such as registry.example.org/team.
VERSION ?= v0.0.0-dev
PUSH ?=
released := $(GO) run ./hack/release -version $(VERSION) -push "$(PUSH)"

.PHONY: image
image: ## Write the image that the chart runs, for linux/amd64 and linux/arm64, as an OCI archive below dist (VERSION=v0.1.0 PUSH=registry.example.org/team)
	$(released) -image-only

.PHONY: release
release: ## Write a release below dist: image, chart, commands for six platforms, krew manifest, SBOM, licences, checksums (VERSION=v0.1.0 PUSH=...)
	$(released)

.PHONY: control-plane
control-plane: ## Build the local control plane and Helm that tests and the demo run on
	$(GO) run ./test/support/env/build

.PHONY: clean
clean: ## Remove what make built here
	rm -rf bin dist coverage*
