package charts_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// kindSchema validates objects of one kind as the API server does.
type kindSchema struct {
	structural *structuralschema.Structural
	openAPI    validation.SchemaValidator
	rules      *cel.Validator
}

func newKindSchema(t *testing.T, kind string) kindSchema {
	t.Helper()
	return newSchema(t, definitionOf(t, kind))
}

func newSchema(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) kindSchema {
	t.Helper()
	// The conversion lifts the schema of the only version to the top.
	props := internal(t, crd).Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	openAPI, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	return kindSchema{structural, openAPI, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// decode reads an object, and fills in the defaults and a name.
func (s kindSchema) decode(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "a"}
	}
	defaulting.Default(object, s.structural)
	return object
}

// validate returns what the API server would say to an object, in place of the
// old one unless that is nil.
func (s kindSchema) validate(object, old map[string]any) field.ErrorList {
	var oldValue any
	errs := validation.ValidateCustomResource(nil, object, s.openAPI)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if old != nil {
		oldValue = old
	}
	broken, _ := s.rules.Validate(context.Background(), nil, s.structural, object, oldValue, math.MaxInt64)
	return append(errs, broken...)
}

func TestSchemaDecides(t *testing.T) {
	const (
		machine   = "VirtualMachine"
		operation = "VirtualMachineOperation"
		policy    = "RegoPolicy"
		server    = "VSphereServer"
		members   = "VirtualMachinePool"
		modules   = "modules: [{name: a.rego, source: package a}]"
		to        = "credentialsSecretRef: {name: vc}"
		trust     = "trust: {caBundle: '-----BEGIN CERTIFICATE-----'}"
		reached   = "url: 'https://vc', " + trust + ", " + to
		match     = `match: {resources: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}`
	)
	pool := func(metadata string) string {
		return "{scaleDownPolicy: NewestFirst, virtualMachineTemplate: {metadata: {" + metadata + "}, spec: {runtime: {pod: {}}}}}"
	}
	decides(t, map[string]decision{
		"labels of members":                {kind: members, spec: pool(`labels: {team: "", example.com/a.b_c-d: A.b-1, "` + strings.Repeat("a", 63) + `": x}, annotations: {Example_1: "any text"}`)},
		"a key with a space":               {kind: members, spec: pool(`labels: {"a b": x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a key of a prefix":                {kind: members, spec: pool(`labels: {example.com/: x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a key with two prefixes":          {kind: members, spec: pool(`labels: {a/b/c: x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a prefix in upper case":           {kind: members, spec: pool(`labels: {Example.com/a: x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"an empty key":                     {kind: members, spec: pool(`labels: {"": x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a long key":                       {kind: members, spec: pool("labels: {" + strings.Repeat("a", 64) + ": x}"), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a long prefix":                    {kind: members, spec: pool("labels: {" + strings.Repeat("a", 254) + "/b: x}"), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a very long key":                  {kind: members, spec: pool(`labels: {? "` + strings.Repeat("a", 300_000) + `" : x}`), want: "each key of virtualMachineTemplate.metadata.labels must be a name"},
		"a label with a space":             {kind: members, spec: pool("labels: {a: b c}"), want: "each value of virtualMachineTemplate.metadata.labels must have only letters"},
		"a label that ends in a dot":       {kind: members, spec: pool("labels: {a: b.}"), want: "each value of virtualMachineTemplate.metadata.labels must have only letters"},
		"a key of an annotation":           {kind: members, spec: pool(`annotations: {"a b": x}`), want: "each key of virtualMachineTemplate.metadata.annotations must be a name"},
		"a pod machine":                    {kind: machine, spec: "{runtime: {pod: {}}}"},
		"an adopted KubeVirt machine":      {kind: machine, spec: "{runtime: {kubevirt: {name: db}}}"},
		"one of its own name":              {kind: machine, spec: "{runtime: {kubevirt: {}}}"},
		"another one later":                {kind: machine, spec: "{runtime: {kubevirt: {name: b}}}", old: "{runtime: {kubevirt: {name: a}}}", want: "spec.runtime.kubevirt.name cannot change"},
		"its size":                         {kind: machine, spec: "{cpu: 2, runtime: {kubevirt: {}}}", want: "spec.cpu and spec.memory are not allowed for an adopted machine"},
		"its image":                        {kind: machine, spec: "{diskImage: {ref: {name: ubuntu}}, runtime: {kubevirt: {}}}", want: "spec.diskImage is not allowed for an adopted machine of KubeVirt"},
		"its nodes":                        {kind: machine, spec: "{nodeSelector: {zone: b}, runtime: {kubevirt: {}}}", want: "spec.nodeSelector is not allowed for an adopted machine of KubeVirt"},
		"a KubeVirt machine":               {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], networks: [{name: a}, {name: b, networkAttachmentDefinition: b}]}}}}"},
		"created and adopted":              {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {name: a, create: {disks: [{name: a, containerDisk: b}]}}}}", want: "set name or create, not both"},
		"adopted later":                    {kind: machine, spec: "{runtime: {kubevirt: {}}}", old: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}]}}}}", want: "cannot change between a machine that is adopted and one that is created"},
		"another disk later":               {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: c}]}}}}", old: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}]}}}}", want: "spec.runtime.kubevirt.create cannot change"},
		"a template for KubeVirt":          {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], template: {spec: {tolerations: [{key: a}]}}}}}}"},
		"another template later":           {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], template: {spec: {a: 1}}}}}}", old: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], template: {spec: {a: 2}}}}}}", want: "spec.runtime.kubevirt.create cannot change"},
		"a template of text":               {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], template: a}}}}", want: "spec.runtime.kubevirt.create.template"},
		"no size":                          {kind: machine, spec: "{runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}]}}}}", want: "needs either spec.memory or instancetype"},
		"an instance type":                 {kind: machine, spec: "{runtime: {kubevirt: {create: {instancetype: {name: u1}, disks: [{name: a, dataVolume: b}]}}}}"},
		"an instance type and a size":      {kind: machine, spec: "{cpu: 2, runtime: {kubevirt: {create: {instancetype: {name: u1}, disks: [{name: a, dataVolume: b}]}}}}", want: "needs either spec.memory or instancetype"},
		"a disk of two kinds":              {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b, dataVolume: c}]}}}}", want: "needs exactly one of containerDisk, persistentVolumeClaim and dataVolume"},
		"the disk of cloud-init":           {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: cloud-init, containerDisk: b}]}}}}", want: "the name cloud-init is reserved"},
		"two Pod networks":                 {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], networks: [{name: a}, {name: b}]}}}}", want: "at most one entry can be the Pod network"},
		"a network elsewhere":              {kind: machine, spec: "{memory: 4Gi, runtime: {kubevirt: {create: {disks: [{name: a, containerDisk: b}], networks: [{name: a, networkAttachmentDefinition: x/y}]}}}}", want: "spec.runtime.kubevirt.create.networks[0].networkAttachmentDefinition"},
		"members that adopt":               {kind: members, spec: "{scaleDownPolicy: NewestFirst, virtualMachineTemplate: {spec: {runtime: {kubevirt: {}}}}}", want: "spec.virtualMachineTemplate.spec.runtime.kubevirt needs create"},
		"a vSphere machine by path":        {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, inventoryPath: /dc/vm/a}}}"},
		"a vSphere machine by UUID":        {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, instanceUUID: 50120a8b-7a3c-4bde-9f00-0123456789ab}}}"},
		"no runtime":                       {kind: machine, spec: "{}", want: "spec.runtime: Required value"},
		"an empty runtime":                 {kind: machine, spec: "{runtime: {}}", want: "exactly one of vsphere, pod and kubevirt"},
		"two runtimes":                     {kind: machine, spec: "{runtime: {pod: {}, kubevirt: {}}}", want: "exactly one of vsphere, pod and kubevirt"},
		"no place on vSphere":              {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}}}}", want: "exactly one of inventoryPath, instanceUUID and clone"},
		"two places on vSphere":            {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, inventoryPath: /a, instanceUUID: 50120a8b-7a3c-4bde-9f00-0123456789ab}}}", want: "exactly one of inventoryPath, instanceUUID and clone"},
		"another runtime later":            {kind: machine, spec: "{runtime: {pod: {}}}", old: "{runtime: {kubevirt: {}}}", want: "cannot change to another runtime"},
		"another image later":              {kind: machine, spec: "{runtime: {pod: {image: b}}}", old: "{runtime: {pod: {image: a}}}"},
		"a node selector":                  {kind: machine, spec: "{nodeSelector: {zone: b}, runtime: {pod: {}}}"},
		"a node selector of numbers":       {kind: machine, spec: "{nodeSelector: {zone: 1}, runtime: {pod: {}}}", want: "spec.nodeSelector.zone"},
		"observing a machine to create":    {kind: machine, spec: "{runPolicy: Observe, runtime: {pod: {}}}", want: "spec.runPolicy: Observe is only allowed for a machine that already exists"},
		"observing a machine that exists":  {kind: machine, spec: "{runPolicy: Observe, runtime: {kubevirt: {name: web-1}}}"},
		"an unknown run policy":            {kind: machine, spec: "{runPolicy: Sometimes, runtime: {pod: {}}}", want: "spec.runPolicy: Unsupported value"},
		"a clone":                          {kind: machine, spec: "{cpu: 2, memory: 4Gi, runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}"},
		"a clone of a place":               {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, inventoryPath: /a, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}", want: "exactly one of inventoryPath, instanceUUID and clone"},
		"a clone with a storage policy":    {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, storagePolicy: gold, networks: [/d/network/n]}}}}"},
		"a clone without a datastore":      {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, networks: [/d/network/n]}}}}", want: "spec.runtime.vsphere.clone needs datastore, storagePolicy or both"},
		"a clone with an empty policy":     {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, storagePolicy: '', networks: [/d/network/n]}}}}", want: "spec.runtime.vsphere.clone.storagePolicy"},
		"a clone without a network":        {kind: machine, spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: []}}}}", want: "spec.runtime.vsphere.clone.networks"},
		"a clone that changes":             {kind: machine, old: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}", spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/b, networks: [/d/network/n]}}}}", want: "clone cannot change once the VirtualMachine exists"},
		"a clone that is to be elsewhere":  {kind: machine, old: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}", spec: "{runtime: {vsphere: {serverRef: {name: b}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}", want: "serverRef of a machine that is cloned cannot change"},
		"an adopted machine to be a clone": {kind: machine, old: "{runtime: {vsphere: {serverRef: {name: a}, inventoryPath: /a}}}", spec: "{runtime: {vsphere: {serverRef: {name: a}, clone: {template: {inventoryPath: /d/vm/t}, folder: /d/vm, resourcePool: /d/host/c, datastore: /d/datastore/a, networks: [/d/network/n]}}}}", want: "cannot change between a machine that is adopted and one that is cloned"},
		"the size of an adopted machine":   {kind: machine, spec: "{cpu: 2, runtime: {vsphere: {serverRef: {name: a}, inventoryPath: /a}}}", want: "it keeps its own size"},
		"no memory":                        {kind: machine, spec: "{memory: '0', runtime: {pod: {}}}", want: "spec.memory must be greater than 0"},
		"a negative grace period":          {kind: machine, spec: "{terminationGracePeriodSeconds: -1, runtime: {pod: {}}}", want: "spec.terminationGracePeriodSeconds"},
		"a start":                          {kind: operation, spec: "{type: Start, virtualMachineName: a}"},
		"an unforced stop":                 {kind: operation, spec: "{type: Stop, virtualMachineName: a, force: false}"},
		"a forced stop":                    {kind: operation, spec: "{type: Stop, virtualMachineName: a, force: true}"},
		"a forced start":                   {kind: operation, spec: "{type: Start, virtualMachineName: a, force: true}", want: "spec.force is not allowed with type Start"},
		"a type of claims only":            {kind: operation, spec: "{type: Delete, virtualMachineName: a}", want: "spec.type: Unsupported value"},
		"a migration to a node":            {kind: operation, spec: "{type: Migrate, virtualMachineName: a, migrate: {nodeName: node-b}}"},
		"a migration to labels":            {kind: operation, spec: "{type: Migrate, virtualMachineName: a, migrate: {nodeSelector: {zone: b}}}"},
		"a migration to both":              {kind: operation, spec: "{type: Migrate, virtualMachineName: a, migrate: {nodeName: node-b, nodeSelector: {zone: b}}}", want: "at most one of nodeName and nodeSelector"},
		"a start to a node":                {kind: operation, spec: "{type: Start, virtualMachineName: a, migrate: {nodeName: node-b}}", want: "spec.migrate is only allowed with type Migrate"},
		"no time at all":                   {kind: operation, spec: "{type: Start, virtualMachineName: a, activeDeadlineSeconds: 0}", want: "spec.activeDeadlineSeconds"},
		"an exact time":                    {kind: operation, spec: "{type: Start, virtualMachineName: a, requestedAt: '2026-01-02T03:04:05.000000006Z'}"},
		"a coarse time":                    {kind: operation, spec: "{type: Start, virtualMachineName: a, requestedAt: '2026-01-02T03:04:05Z'}", want: "spec.requestedAt"},
		"another type later":               {kind: operation, spec: "{type: Stop, virtualMachineName: a}", old: "{type: Start, virtualMachineName: a}", want: "create another operation instead"},
		"a field less later":               {kind: operation, spec: "{type: Stop, virtualMachineName: a}", old: "{type: Stop, virtualMachineName: a, override: b}", want: "create another operation instead"},
		"the same operation later":         {kind: operation, spec: "{type: Stop, virtualMachineName: a, force: false}", old: "{type: Stop, virtualMachineName: a}"},
		"a policy":                         {kind: policy, spec: "{package: a.b_c, " + modules + ", " + match + "}"},
		"a policy with parameters":         {kind: policy, spec: "{package: a, parameters: {a: [1]}, reads: [{apiVersion: v1, kind: Pod}], " + modules + ", " + match + "}"},
		"a policy without a match":         {kind: policy, spec: "{package: a, " + modules + "}", want: "spec.match.resources is required"},
		"an empty match":                   {kind: policy, spec: "{package: a, match: {}, " + modules + "}", want: "spec.match.resources: Required value"},
		"a policy without modules":         {kind: policy, spec: "{package: a, modules: [], " + match + "}", want: "spec.modules"},
		"modules of the same name":         {kind: policy, spec: "{package: a, modules: [{name: a.rego, source: a}, {name: a.rego, source: b}], " + match + "}", want: "spec.modules[1]: Duplicate value"},
		"a test among the modules":         {kind: policy, spec: "{package: a, modules: [{name: a_test.rego, source: a}], " + match + "}", want: "put tests into spec.tests"},
		"a module among the tests":         {kind: policy, spec: "{package: a, tests: [{name: a.rego, source: a}], " + modules + ", " + match + "}", want: "spec.tests[0].name"},
		"a package in upper case":          {kind: policy, spec: "{package: a.B, " + modules + ", " + match + "}", want: "spec.package"},
		"a policy among libraries":         {kind: policy, spec: "{package: sallyport.lib.a, " + modules + ", " + match + "}", want: "spec.package must be sallyport.lib or below for a library"},
		"a policy next to libraries":       {kind: policy, spec: "{package: sallyport.library, " + modules + ", " + match + "}"},
		"a library":                        {kind: policy, spec: "{package: sallyport.lib.a, library: true, " + modules + "}"},
		"a library elsewhere":              {kind: policy, spec: "{package: a, library: true, " + modules + "}", want: "spec.package must be sallyport.lib or below for a library"},
		"a library with a match":           {kind: policy, spec: "{package: sallyport.lib, library: true, " + modules + ", " + match + "}", want: "spec.match is not allowed"},
		"a library with reads":             {kind: policy, spec: "{package: sallyport.lib, library: true, reads: [{apiVersion: v1, kind: Pod}], " + modules + "}", want: "spec.reads is not allowed"},
		"a library with parameters":        {kind: policy, spec: "{package: sallyport.lib, library: true, parameters: {}, " + modules + "}", want: "spec.parameters is not allowed"},
		"a server without tenants":         {kind: server, spec: "{" + reached + "}"},
		"a server by thumbprint":           {kind: server, spec: "{url: 'https://vc', " + to + ", trust: {thumbprint: 'aA" + strings.Repeat(":0f", 31) + "'}}"},
		"a server without trust":           {kind: server, spec: "{url: 'https://vc', " + to + "}", want: "spec.trust: Required value"},
		"a server with empty trust":        {kind: server, spec: "{url: 'https://vc', " + to + ", trust: {}}", want: "spec.trust needs exactly one of caBundle and thumbprint"},
		"a server trusted twice":           {kind: server, spec: "{url: 'https://vc', " + to + ", trust: {caBundle: '-----BEGIN CERTIFICATE-----', thumbprint: 'aA" + strings.Repeat(":0f", 31) + "'}}", want: "spec.trust needs exactly one of caBundle and thumbprint"},
		"a bundle that is none":            {kind: server, spec: "{url: 'https://vc', " + to + ", trust: {caBundle: 'MIIC'}}", want: "spec.trust.caBundle must have a certificate in PEM"},
		"a short thumbprint":               {kind: server, spec: "{url: 'https://vc', " + to + ", trust: {thumbprint: 'aA" + strings.Repeat(":0f", 19) + "'}}", want: "spec.trust.thumbprint must be the SHA-256"},
		"a tenant by name":                 {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [/dc/vm/a], adopt: true}]}"},
		"a storage policy of no name":      {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, storagePolicies: ['']}]}", want: "storagePolicies[0]"},
		"a tenant by labels":               {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {selector: {matchLabels: {a: b}}}}]}"},
		"a tenant by both":                 {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a], selector: {}}}]}", want: "namespaces needs exactly one of names and selector"},
		"a tenant by nothing":              {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {}}]}", want: "namespaces needs exactly one of names and selector"},
		"two tenants of a name":            {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}}, {name: a, namespaces: {names: [b]}}]}", want: "spec.tenants[1]: Duplicate value"},
		"adoption of nothing":              {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, adopt: true}]}", want: "adopt: true needs at least one entry in folders"},
		"a folder that is a root":          {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [//]}]}", want: "must be an inventory path"},
		"a folder without a root":          {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [dc/vm]}]}", want: "must be an inventory path"},
		"a folder with a slash":            {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [/dc/vm/]}]}", want: "must be an inventory path"},
		"a folder above":                   {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [/dc/vm/a/../b]}]}", want: "must not have . or .. as an element"},
		"a folder with dots":               {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, folders: [/dc/vm/...a..]}]}"},
		"a pool above":                     {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, resourcePools: [/dc/..]}]}", want: "must not have . or .. as an element"},
		"a datastore by its name":          {kind: server, spec: "{" + reached + ", tenants: [{name: a, namespaces: {names: [a]}, datastores: [fast]}]}", want: "must be an inventory path"},
		"a long timeout":                   {kind: policy, spec: "{package: a, timeoutMilliseconds: 5000, " + modules + ", " + match + "}", want: "spec.timeoutMilliseconds"},
	})
}

// What is made of an object has names that begin with its own, so that a longer one would never be made. One that exists can be changed.
func TestSchemaLimitsNames(t *testing.T) {
	const created, image = "{memory: 4Gi, runtime: {kubevirt: {create: {}}}}", "{diskImage: {ref: {name: a}}, runtime: {pod: {}}}"
	for what, tc := range map[string]struct {
		kind, spec string
		most       int
		want       string
	}{
		"a KubeVirt machine that is created": {"VirtualMachine", created, 63, "metadata.name must have at most 63 characters"},
		"one that is adopted":                {"VirtualMachine", "{runtime: {kubevirt: {}}}", 253, ""},
		"a Pod":                              {"VirtualMachine", "{runtime: {pod: {}}}", 253, ""},
		"a Pod with an image":                {"VirtualMachine", image, 211, "metadata.name must have at most 211 characters"},
		"a disk of Pods":                     {"VirtualDisk", "{size: 1Gi, runtime: {pod: {}}}", 216, "metadata.name must have at most 216 characters"},
		"a disk of KubeVirt":                 {"VirtualDisk", "{size: 1Gi, runtime: {kubevirt: {}}}", 216, "metadata.name must have at most 216 characters"},
		"a disk on a vCenter":                {"VirtualDisk", "{size: 1Gi, runtime: {vsphere: {serverRef: {name: a}, datastore: /d/datastore/a}}}", 253, ""},
	} {
		t.Run(what, func(t *testing.T) {
			schema := newKindSchema(t, tc.kind)
			of := func(length int) map[string]any {
				return schema.decode(t, "metadata: {name: "+strings.Repeat("a", length)+"}\nspec: "+tc.spec)
			}
			if errs := schema.validate(of(tc.most), nil); len(errs) > 0 {
				t.Errorf("%d characters: %v", tc.most, errs)
			}
			long := of(tc.most + 1)
			if errs := schema.validate(long, nil); tc.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("%d characters: %v, want %q", tc.most+1, errs, tc.want)
			}
			if errs := schema.validate(long, of(tc.most+1)); len(errs) > 0 {
				t.Errorf("an update: %v", errs)
			}
		})
	}
}

// decision is a spec, and what the schema says of it.
type decision struct {
	kind string
	spec string
	old  string // the spec that it replaces, if any
	want string // part of the only error; empty for none
}

// decides has the schemas of the kinds validate specs.
func decides(t *testing.T, rows map[string]decision) {
	t.Helper()
	schemas := map[string]kindSchema{}
	for name, row := range rows {
		schema, known := schemas[row.kind]
		if !known {
			schema = newKindSchema(t, row.kind)
			schemas[row.kind] = schema
		}
		t.Run(name, func(t *testing.T) {
			var old map[string]any
			if row.old != "" {
				old = schema.decode(t, "spec: "+row.old)
			}
			errs := schema.validate(schema.decode(t, "spec: "+row.spec), old)
			switch {
			case row.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case row.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), row.want)):
				t.Errorf("want one error with %q, got %v", row.want, errs)
			}
		})
	}
}

// The URL of a vCenter, and the one error that it gives.
func TestSchemaOfServerURLs(t *testing.T) {
	rows := map[string]decision{}
	for name, test := range map[string][2]string{
		"a host":                            {"https://vcenter.example.org", ""},
		"a port and a path":                 {"https://vcenter.example.org:8443/sdk", ""},
		"an address":                        {"https://[2001:db8::1]:443/", ""},
		"not encrypted":                     {"http://vcenter.example.org", "spec.url must begin with https://"},
		"a user":                            {"https://root:secret@vcenter.example.org", "spec.url must not contain a user or a password"},
		"another path":                      {"https://vcenter.example.org/ui", "spec.url must be https://host"},
		"a question":                        {"https://vcenter.example.org/sdk?a=b", "spec.url must be https://host"},
		"a fragment":                        {"https://vcenter.example.org#a", "spec.url must be https://host"},
		"no host":                           {"https://:443/sdk", "spec.url must be https://host"},
		"a port that is no number":          {"https://vcenter:https", "spec.url must be https://host"},
		"a line that follows":               {"https://vcenter\nhttps://other", "spec.url must be https://host"},
		"nothing that could be an address":  {"https:///sdk", "spec.url must be https://host"},
		"a host that ends in a hyphen":      {"https://vcenter-", "spec.url must be https://host"},
		"a place in the middle of the text": {"see https://vcenter", "spec.url must begin with https://"},
	} {
		spec := fmt.Sprintf("{url: %q, trust: {caBundle: '-----BEGIN CERTIFICATE-----'}, credentialsSecretRef: {name: vc}}", test[0])
		rows[name] = decision{kind: "VSphereServer", spec: spec, want: test[1]}
	}
	decides(t, rows)
}

func TestSchemaOfTemplateSources(t *testing.T) {
	const (
		url    = "url: 'https://images.example.org/a.ova'"
		bundle = "caBundle: '-----BEGIN CERTIFICATE-----'"
	)
	rows := map[string]decision{}
	for name, test := range map[string]struct{ source, want string }{
		"a URL":              {url, ""},
		"a URL and a bundle": {url + ", " + bundle, ""},
		"nothing":            {"", "spec.source.url: Required value"},
		"a URL of HTTP":      {"url: 'http://images.example.org/a.ova'", "spec.source.url must begin with https://"},
	} {
		rows[name] = decision{kind: "VSphereTemplate", want: test.want, spec: fmt.Sprintf(`{serverRef: {name: vc}, name: ubuntu, release: "1", source: {sha256: "%s", %s},
			failureDomains: [{name: a, folder: /dc/vm/a, resourcePool: /dc/host/c, datastore: /dc/datastore/d, network: /dc/network/n}]}`,
			strings.Repeat("0", 64), test.source)}
	}
	decides(t, rows)
}

func TestSchemaDefaults(t *testing.T) {
	tests := map[string]map[string]any{
		"VirtualMachine":          {"restartApprovalMode": "Manual", "terminationGracePeriodSeconds": int64(180)},
		"VirtualMachineOperation": {"force": false, "ttlSecondsAfterFinished": int64(86400)},
		"VSphereServer":           {},
		"RegoPolicy":              {"mode": "Enforce", "override": "Users", "onError": "Deny", "failurePolicy": "Fail", "timeoutMilliseconds": int64(v1alpha1.DefaultTimeoutMilliseconds), "backgroundAudit": "Disabled", "library": false},
	}
	for kind, want := range tests {
		t.Run(kind, func(t *testing.T) {
			spec, _ := newKindSchema(t, kind).decode(t, "spec: {}")["spec"].(map[string]any)
			for name, value := range want {
				if spec[name] != value {
					t.Errorf("spec.%s is %v (%[2]T) by default, want %v", name, spec[name], value)
				}
			}
			if len(spec) != len(want) {
				t.Errorf("got the defaults %v, want %v", spec, want)
			}
		})
	}
}
