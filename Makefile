# `make` alone lists what there is.

GO ?= go

# The generators and linters, pinned in a module of their own. The first run of
# each builds it.
tool := $(GO) tool -modfile=hack/tools/go.mod

api_generated := api/v1alpha1
crd_generated := charts/sallyport/files/crds
policies_generated := charts/sallyport/files/policies
reference_generated := docs

# Generates everything below the folder $(1), which has the layout of this one.
define generate_into
$(tool) controller-gen object:headerFile=hack/boilerplate.go.txt crd paths=./api/... \
	output:object:dir=$(1)/$(api_generated) output:crd:dir=$(1)/$(crd_generated) && \
$(GO) run ./charts/generate $(1)/$(policies_generated) && \
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
lint: ## Check style and the import rules
	$(tool) golangci-lint run ./...

.PHONY: test-rego
test-rego: ## Run the tests of the policies, at full coverage
	$(GO) run ./cmd/sallyport policy test policies --coverage 100

# What the race detector's run takes a tenth of, and is run again without it in full; and what it leaves out, because govmomi's
# simulator has races of its own between machines that are made and machines that are looked for, and because what the detector
# notes is more than a rehearsal may have.
in_full := ./test/inputs ./test/model ./test/replay ./test/sweep ./test/vcenter ./webhooks/trial

# -count=1: the test cache does not look at the binary that the end-to-end tests build and run.
.PHONY: test-unit
test-unit: ## Run the Go tests, with the race detector if there is a C compiler
	@race=-race; \
	if [ "$$($(GO) env CGO_ENABLED)" != 1 ] || ! echo 'int main(void) { return 0; }' | $$($(GO) env CC) -x c -o /dev/null - 2>/dev/null; then \
		race=; echo "no C compiler for cgo: testing without the race detector"; \
	fi; \
	set -x; $(GO) test $$race -count=1 -timeout 20m ./... && \
	if [ -n "$$race" ]; then $(GO) test -count=1 -timeout 15m $(in_full); fi

# Go fuzzes one target at a time. Inputs that reach something new are made smaller in ten runs, and not for a minute each as Go would have it.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target, each for a minute (FUZZTIME=10m for longer)
	@grep -roH --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's|/[^/]*:func | |' | sort | while read -r package target; do \
		echo "$$package $$target" && \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package" </dev/null || exit 1; \
	done

# What they say is worth as much as the sample is large: a hundred take an hour on two cores.
SEED ?= 1
N ?= 100

.PHONY: mutants
mutants: ## Change a token of the code at random, a hundred times, and say which changes no test notices (SEED=2 N=20 WIDE=1)
	$(GO) run ./hack/mutants -seed $(SEED) -n $(N) $(if $(filter 1,$(WIDE)),-wide)

.PHONY: test
test: lint verify-generated test-rego control-plane test-unit ## Run everything that CI runs

.PHONY: demo
demo: ## Show Sallyport on a local control plane and a simulated vCenter (SCRIPT=1 ends with a verdict)
	$(GO) run ./cmd/demo $(if $(filter 1,$(SCRIPT)),--script)

# What it compares with is built from a module of its own. The race detector and other work on the machine make it worthless.
.PHONY: bench
bench: ## Measure what a decision costs, against a webhook that does nothing, OPA, CEL and Gatekeeper's framework
	cd test/bench/gatekeeper && $(GO) build -o ../../../bin/bench-gatekeeper .
	$(GO) run ./test/bench --gatekeeper bin/bench-gatekeeper

.PHONY: build
build: ## Build bin/sallyport and the plugin bin/kubectl-sallyport, with what completes its command lines, without symbol tables
	$(GO) build -trimpath -ldflags "-s -w" -o bin/ ./cmd/sallyport ./cmd/kubectl-sallyport
	install -m 755 cmd/kubectl-sallyport/kubectl_complete-sallyport bin/

# What builds images: docker, podman, buildah, nerdctl.
CONTAINER_TOOL ?= docker
IMAGE ?= registry.sallyport.dev/sallyport:dev

.PHONY: image
image: export CGO_ENABLED = 0
image: build ## Build the image that the chart runs (IMAGE=registry.example.org/sallyport:dev, CONTAINER_TOOL=podman)
	$(CONTAINER_TOOL) build -t $(IMAGE) .

.PHONY: control-plane
control-plane: ## Build the local control plane that tests and the demo run on
	$(GO) run ./test/env/build

.PHONY: clean
clean: ## Remove what make built here
	rm -rf bin coverage*
