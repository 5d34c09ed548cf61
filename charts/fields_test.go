package charts_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
)

// judges are the fields of the kinds that users write and that reach a runtime, with the policy that judges each, or with why none has to.
// A path is that of its field and of all below it that have no row. The template of a pool has the rows of a VirtualMachine and a
// VirtualDisk.
var judges = map[string]string{
	"VirtualMachine metadata.labels":      "deletion-protected",
	"VirtualMachine metadata.annotations": "machines-abandon",
	"VirtualMachine metadata.finalizers":  "machines-abandon",

	"VirtualMachine spec.runPolicy":                     "none: it starts and stops the machine itself, and operations-applicability judges operations by it",
	"VirtualMachine spec.nodeName":                      "placement-migration",
	"VirtualMachine spec.nodeSelector":                  "none: it selects among the hosts of spec.runtime.vsphere.clone.resourcePool, or among the nodes that the chart allows machines",
	"VirtualMachine spec.cpu":                           "servers-quota",
	"VirtualMachine spec.memory":                        "servers-quota",
	"VirtualMachine spec.restartApprovalMode":           "none: it restarts the machine itself",
	"VirtualMachine spec.terminationGracePeriodSeconds": "none: it delays the machine itself",
	"VirtualMachine spec.diskImage":                     "images-references",
	"VirtualMachine spec.diskImage.template":            "none: images-sources judges the VMDiskImage that is created from it",
	"VirtualMachine spec.diskImage.template.secretRef":  "images-references",
	"VirtualMachine spec.blockDeviceRefs":               "none: they are VirtualDisks of the namespace, which servers-tenancy judges",

	"VirtualMachine spec.runtime.vsphere.serverRef":                             "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.inventoryPath":                         "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.instanceUUID":                          "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.template":                        "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.folder":                          "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.resourcePool":                    "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.datastore":                       "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.storagePolicy":                   "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.networks":                        "servers-tenancy",
	"VirtualMachine spec.runtime.vsphere.clone.disks":                           "none: they are on a datastore that servers-tenancy allows; quotas of datastores are vCenter's",
	"VirtualMachine spec.runtime.vsphere.clone.hostname":                        "none: only the guest reads it",
	"VirtualMachine spec.runtime.vsphere.clone.cloudInit.secretRef":             "machines-secrets",
	"VirtualMachine spec.runtime.pod.image":                                     "none: the agent runs it as a machine, and the Pod is admitted like any other",
	"VirtualMachine spec.runtime.pod.snapshotSecretRef":                         "machines-secrets",
	"VirtualMachine spec.runtime.pod.template":                                  "none: it has only fields that give a Pod no more than it has without them",
	"VirtualMachine spec.runtime.kubevirt.name":                                 "machines-access",
	"VirtualMachine spec.runtime.kubevirt.create":                               "none: who may create VirtualMachines of KubeVirt, for which machines-access asks, may set all of it",
	"VirtualMachine spec.runtime.kubevirt.create.cloudInit":                     "machines-secrets",
	"VirtualMachine spec.runtime.kubevirt.create.disks[].persistentVolumeClaim": "machines-disks",
	"VirtualMachine spec.runtime.kubevirt.create.disks[].dataVolume":            "machines-disks",

	"VirtualMachineOperation metadata.labels":              "deletion-protected",
	"VirtualMachineOperation metadata.annotations":         "none: no annotation of an operation has an effect but sallyport.dev/override, which its author needs the verb for",
	"VirtualMachineOperation metadata.finalizers":          "none: nothing is left on a runtime without it",
	"VirtualMachineOperation spec.type":                    "operations-supersede",
	"VirtualMachineOperation spec.virtualMachineName":      "operations-applicability",
	"VirtualMachineOperation spec.force":                   "operations-supersede",
	"VirtualMachineOperation spec.migrate.nodeName":        "placement-migration",
	"VirtualMachineOperation spec.migrate.nodeSelector":    "none: as spec.nodeSelector of a VirtualMachine",
	"VirtualMachineOperation spec.activeDeadlineSeconds":   "none: it ends the operation itself",
	"VirtualMachineOperation spec.ttlSecondsAfterFinished": "none: it deletes the operation itself",
	"VirtualMachineOperation spec.virtualMachineUID":       "defaults",
	"VirtualMachineOperation spec.requestedBy":             "defaults",
	"VirtualMachineOperation spec.requestedAt":             "defaults",
	"VirtualMachineOperation spec.override":                "defaults",

	"VirtualMachinePool metadata.labels":                      "deletion-protected",
	"VirtualMachinePool metadata.annotations":                 "scaling-guard",
	"VirtualMachinePool metadata.finalizers":                  "none: Sallyport has none on pools",
	"VirtualMachinePool spec.replicas":                        "scaling-guard",
	"VirtualMachinePool spec.scaleDownPolicy":                 "pools-scale-down",
	"VirtualMachinePool spec.scaleDownTargets":                "pools-scale-down",
	"VirtualMachinePool spec.virtualMachineTemplate.metadata": "none: the schema rejects labels and annotations of Sallyport that are for one object; those of members do not reach a runtime",
	"VirtualMachinePool spec.virtualDiskTemplates[].name":     "none: it is a part of the names of the pool's own disks",
	"VirtualMachinePool spec.virtualDiskTemplates[].reclaim":  "none: it deletes disks of the pool itself",
	"VirtualMachinePool spec.rollout":                         "none: it changes and replaces members of the pool itself",

	"VirtualDisk metadata.labels":                "deletion-protected",
	"VirtualDisk metadata.annotations":           "machines-abandon",
	"VirtualDisk metadata.finalizers":            "machines-abandon",
	"VirtualDisk spec.size":                      "none: it is on a datastore that servers-tenancy allows, or a PersistentVolumeClaim, which has a ResourceQuota",
	"VirtualDisk spec.source":                    "images-references",
	"VirtualDisk spec.runtime.vsphere.serverRef": "servers-tenancy",
	"VirtualDisk spec.runtime.vsphere.datastore": "servers-tenancy",
	"VirtualDisk spec.runtime.pod":               "none: a PersistentVolumeClaim is admitted like any other",
	"VirtualDisk spec.runtime.kubevirt":          "none: a PersistentVolumeClaim is admitted like any other",

	"VSphereTemplate metadata.labels":      "deletion-protected",
	"VSphereTemplate metadata.annotations": "machines-abandon",
	"VSphereTemplate metadata.finalizers":  "machines-abandon",
	"VSphereTemplate spec.serverRef":       "templates-tenancy",
	"VSphereTemplate spec.name":            "none: it is in a folder that templates-tenancy allows, and nothing foreign of the name is changed",
	"VSphereTemplate spec.source.url":      "templates-release",
	"VSphereTemplate spec.source.sha256":   "none: nothing but content with this SHA-256 is imported",
	"VSphereTemplate spec.source.caBundle": "none: it is trusted for the host in spec.source.url only",
	"VSphereTemplate spec.release":         "templates-release",
	"VSphereTemplate spec.failureDomains":  "templates-tenancy",
	"VSphereTemplate spec.tags":            "templates-tenancy",
	"VSphereTemplate spec.diskType":        "none: it is the format of files of the template itself",
	"VSphereTemplate spec.firmware":        "none: it is of the template itself",
	"VSphereTemplate spec.secureBoot":      "none: it is of the template itself",
	"VSphereTemplate spec.keepVersions":    "none: it keeps at most ten releases of the template itself",
	"VSphereTemplate spec.paused":          "none: it stops changes of the template itself",

	"VMDiskImage metadata.labels":      "deletion-protected",
	"VMDiskImage metadata.annotations": "machines-abandon",
	"VMDiskImage metadata.finalizers":  "machines-abandon",
	"VMDiskImage spec.url":             "images-sources",
	"VMDiskImage spec.sourceType":      "images-sources",
	"VMDiskImage spec.checksum":        "images-sources",
	"VMDiskImage spec.secretRef":       "images-sources",
	"VMDiskImage spec.diskSize":        "none: PersistentVolumeClaims have a ResourceQuota",
	"VMDiskImage spec.storageClass":    "none: PersistentVolumeClaims of a StorageClass have a ResourceQuota",
	"VMDiskImage spec.snapshotClass":   "none: it is used only if its driver is that of the StorageClass",
	"VMDiskImage spec.import":          "none: it bounds the import itself",

	"VMDiskImage spec.retired":              "none: it closes the image to new users",
	"VMDiskImage spec.allowedNamespaces":    "none: who may write the image decides who may use it, and policies judge each use by it",
	"VMDiskImage spec.deletionPolicy":       "none: it deletes the image itself, and deletion-references judges the deletion",
	"VMDiskImage spec.ttlAfterUnreferenced": "none: it delays the deletion of the image itself",
}

// judgesOfSubresources are the subresources of these kinds.
var judgesOfSubresources = map[string]string{
	"status": "none: reconcilers write it, people have no right to it (TestRolesForPeople), and it changes no metadata (TestSubresourcesChangeNoLabels)",
	"scale":  "pools-scale-down",
}

// Each field of a kind that reaches a runtime, and each subresource, has a policy that judges it, or a reason. A new field has no row yet.
func TestEveryFieldHasAJudge(t *testing.T) {
	crds := definitions(t)
	shipped := shipped.Policies(t)
	used := map[string]bool{}
	for _, crd := range crds {
		kind := &v1alpha1.Kinds[slices.IndexFunc(v1alpha1.Kinds, func(k v1alpha1.Kind) bool { return k.Name == crd.Spec.Names.Kind })]
		if !kind.People {
			continue
		}
		version := crd.Spec.Versions[0]
		paths := []string{"metadata.labels", "metadata.annotations", "metadata.finalizers"}
		paths = append(paths, leaves("spec", version.Schema.OpenAPIV3Schema.Properties["spec"])...)
		for _, path := range paths {
			row := rowOf(kind.Name, path)
			used[row] = true
			judged(t, shipped, kind, path, judges[row])
		}
		if s := version.Subresources; s != nil && s.Status != nil {
			judged(t, shipped, kind, "/status", judgesOfSubresources["status"])
		}
		if s := version.Subresources; s != nil && s.Scale != nil {
			judged(t, shipped, kind, "/scale", judgesOfSubresources["scale"])
		}
	}
	for _, row := range slices.Sorted(maps.Keys(judges)) {
		if !used[row] {
			t.Errorf("%s: there is no such field", row)
		}
	}
}

// leaves are the paths of the fields of a schema that have no fields of their own.
func leaves(path string, schema apiextensionsv1.JSONSchemaProps) (all []string) {
	if schema.Items != nil {
		return leaves(path+"[]", *schema.Items.Schema)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		all = append(all, leaves(path+"."+name, schema.Properties[name])...)
	}
	if len(all) == 0 {
		return []string{path}
	}
	return all
}

// rowOf is the key of the row of a field: its own, or that of the field that it is in.
func rowOf(kind, path string) string {
	for template, of := range map[string]string{
		"spec.virtualMachineTemplate.spec": "VirtualMachine spec", "spec.virtualDiskTemplates[].spec": "VirtualDisk spec",
	} {
		if rest, is := strings.CutPrefix(path, template+"."); is && kind == "VirtualMachinePool" {
			return rowOf(strings.TrimSuffix(of, " spec"), "spec."+rest)
		}
	}
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if _, is := judges[kind+" "+at]; is {
			return kind + " " + at
		}
	}
	return kind + " " + path
}

// judged checks a row: the policy is asked about the kind, and its Rego, or its conditions, have the name of the field.
func judged(t *testing.T, shipped []v1alpha1.RegoPolicy, kind *v1alpha1.Kind, path, judge string) {
	t.Helper()
	if reason, none := strings.CutPrefix(judge, "none: "); none && reason != "" {
		return
	}
	i := slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == judge && !p.Spec.Library })
	if i < 0 {
		t.Errorf("%s %s: no policy %q judges it, and no reason says why none has to", kind.Name, path, judge)
		return
	}
	resources, name := []string{"*/*", kind.Resource()}, path[strings.LastIndex(path, ".")+1:]
	switch {
	case strings.HasPrefix(path, "/"):
		resources, name = []string{kind.Resource() + path}, ""
	case strings.HasPrefix(path, "spec.virtualMachineTemplate.spec."): // a pool creates and updates its members through the API server
		resources = append(resources, "virtualmachines")
	}
	asked := slices.ContainsFunc(shipped[i].Spec.Match.Resources, func(r v1alpha1.PolicyResources) bool {
		return slices.ContainsFunc(resources, func(resource string) bool { return slices.Contains(r.Resources, resource) })
	})
	if !asked {
		t.Errorf("%s %s: policy %s matches none of %v", kind.Name, path, judge, resources)
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.TrimSuffix(name, "[]")) + `\b`)
	for _, p := range shipped {
		if p.Name != judge && !p.Spec.Library {
			continue
		}
		for _, m := range p.Spec.Modules {
			if word.MatchString(m.Source) {
				return
			}
		}
	}
	t.Errorf("%s %s: the Rego of policy %s does not have the name of the field", kind.Name, path, judge)
}
