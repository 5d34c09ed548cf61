package grants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Extent is how much of an object policies may patch.
type Extent string

// Extents that can be granted.
const (
	// Metadata is labels and annotations, except those that Sallyport or Kubernetes acts on.
	Metadata Extent = "Metadata"
	// All is the whole object, except annotations that Sallyport acts on.
	All Extent = "All"
)

// Patchable is what policies may patch. The zero value has the chart's defaults.
type Patchable struct {
	// Kinds are granted in addition to Sallyport's own; nil means [DefaultKinds].
	Kinds Kinds
	// By is the Helm release that sets the grants.
	By Release
}

// ownKinds are Sallyport's kinds whose labels and annotations are always granted. Fields of spec are not: URLs, names of Secrets,
// servers and paths in them have effects elsewhere.
var ownKinds = func() Kinds {
	mutated := Kinds{}
	for _, kind := range v1alpha1.Kinds {
		if len(kind.Mutating) > 0 {
			mutated[kind.Resource()+"."+v1alpha1.GroupName] = Metadata
		}
	}
	return mutated
}()

// defaultedFields are the fields of Sallyport's kinds that the shipped policy `defaults` sets. They are always granted: without them no
// operation is carried out and no object is cleaned up.
var defaultedFields = map[string][]changedPlace{
	"virtualmachines." + v1alpha1.GroupName:  {{part: "metadata.finalizers"}, {part: "spec.runPolicy"}},
	"virtualdisks." + v1alpha1.GroupName:     {{part: "metadata.finalizers"}},
	"vmdiskimages." + v1alpha1.GroupName:     {{part: "metadata.finalizers"}},
	"vspheretemplates." + v1alpha1.GroupName: {{part: "metadata.finalizers"}},
	"virtualmachineoperations." + v1alpha1.GroupName: {
		{"metadata.labels", "sallyport.dev/virtual-machine"}, {part: "spec.requestedBy"}, {part: "spec.requestedAt"},
		{part: "spec.virtualMachineUID"}, {part: "spec.override"},
	},
}

// DefaultKinds returns the chart's default grants besides Sallyport's own kinds: workloads.
func DefaultKinds() Kinds {
	return Kinds{
		"pods": Metadata, "replicationcontrollers": Metadata,
		"daemonsets.apps": Metadata, "deployments.apps": Metadata, "replicasets.apps": Metadata, "statefulsets.apps": Metadata,
		"cronjobs.batch": Metadata, "jobs.batch": Metadata,
	}
}

// Kinds maps resources, named as in kubectl, to the granted extent. It is a flag value: RESOURCE=EXTENT,...
type Kinds map[string]Extent

// Set implements pflag.Value. It adds to the existing entries.
func (k *Kinds) Set(text string) error {
	if *k == nil {
		*k = Kinds{}
	}
	for entry := range strings.SplitSeq(text, ",") {
		if entry == "" {
			continue
		}
		name, extent, _ := strings.Cut(entry, "=")
		group, resource := split(name)
		switch why := neverReason(group, resource); {
		case name == "":
			return fmt.Errorf("%q does not name a resource", entry)
		case why != "":
			return fmt.Errorf("%s cannot be granted: %s", name, why)
		case extent != string(Metadata) && extent != string(All):
			return fmt.Errorf("%s: the extent of %s is %s or %s", entry, name, Metadata, All)
		}
		(*k)[name] = Extent(extent)
	}
	return nil
}

// String implements pflag.Value.
func (k *Kinds) String() string {
	entries := make([]string, 0, len(*k))
	for _, name := range slices.Sorted(maps.Keys(*k)) {
		entries = append(entries, name+"="+string((*k)[name]))
	}
	return strings.Join(entries, ",")
}

// Type implements pflag.Value.
func (*Kinds) Type() string { return "kinds" }

// Usage returns the help text of a flag of type Kinds.
func Usage() string {
	kinds := DefaultKinds()
	return "`kinds` that policies may patch in addition to Sallyport's own, as RESOURCE=EXTENT,... with the extent Metadata " +
		"(labels and annotations) or All (the whole object); default: " + kinds.String()
}

// split parses kubectl's name of a resource: name.group/subresource.
func split(name string) (group, resource string) {
	name, sub, is := strings.Cut(name, "/")
	resource, group, _ = strings.Cut(name, ".")
	if is {
		resource += "/" + sub
	}
	return group, resource
}

// Named returns kubectl's name of a resource.
func Named(group, resource string) string {
	name, sub, is := strings.Cut(resource, "/")
	if group != "" {
		name += "." + group
	}
	if is {
		name += "/" + sub
	}
	return name
}

// Extent returns how much of a resource may be patched; "" for nothing.
func (p Patchable) Extent(group, resource string) Extent {
	if neverReason(group, resource) != "" {
		return ""
	}
	name := Named(group, resource)
	kinds := p.Kinds
	if kinds == nil {
		kinds = DefaultKinds()
	}
	return cmp.Or(kinds[name], ownKinds[name])
}

// Refusal returns why a resource may not be patched at all, and what would grant it; "" if it may.
func (p Patchable) Refusal(group, resource string) string {
	if p.Extent(group, resource) != "" {
		return ""
	}
	if why := neverReason(group, resource); why != "" {
		return "no policy may patch it: " + why
	}
	return "policies may not patch it; to grant its labels and annotations, run: " + p.grantCommand(group, resource, Metadata)
}

func (p Patchable) grantCommand(group, resource string, extent Extent) string {
	return p.By.Upgrade("patchable", Kinds{Named(group, resource): extent})
}

// neverReason returns why a resource cannot be granted; "" if it can. Patching it would let a policy's author act with the rights of
// other users.
func neverReason(group, resource string) string {
	name, _, _ := strings.Cut(resource, "/")
	if strings.Contains(group+resource, "*") {
		return "a wildcard is not granted; name the resources"
	}
	if why := neverGroups[group]; why != "" {
		return why
	}
	return neverKinds[Named(group, name)]
}

const (
	whyRights    = "it controls access"
	whyAdmission = "it configures admission"
	whyServes    = "it configures which APIs are served"
	whyIdentity  = "it establishes identities"
)

var neverGroups = map[string]string{
	"rbac.authorization.k8s.io":    whyRights,
	"authorization.k8s.io":         whyRights,
	"authorization.openshift.io":   whyRights,
	"security.openshift.io":        whyRights,
	"admissionregistration.k8s.io": whyAdmission,
	"apiextensions.k8s.io":         whyServes,
	"apiregistration.k8s.io":       whyServes,
	"authentication.k8s.io":        whyIdentity,
	"certificates.k8s.io":          whyIdentity,
	"oauth.openshift.io":           whyIdentity,
	"user.openshift.io":            whyIdentity,
}

var neverKinds = map[string]string{
	"secrets":                              "it holds credentials",
	"serviceaccounts":                      whyIdentity,
	"namespaces":                           "admission, quotas and network policies select by its labels",
	"projects.project.openshift.io":        "admission, quotas and network policies select by its labels",
	"projectrequests.project.openshift.io": "admission, quotas and network policies select by its labels",
	"nodes":                                "it controls what runs where, and which objects kubelets may read",
	"regopolicies." + v1alpha1.GroupName:   "a policy could rewrite the policies that check it",
}
