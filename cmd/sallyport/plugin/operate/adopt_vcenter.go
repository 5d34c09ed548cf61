package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// vcenter is the flags for machines of a vCenter.
type vcenter struct {
	server, folder string
	tags           map[string]string
}

func (v *vcenter) addFlags(p *cli.Plugin, command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&v.server, "vsphere-server", "", "the VSphereServer of the vCenter (--server is the Kubernetes API server)")
	f.StringVar(&v.folder, "folder", "", "adopt all machines in this folder of the vCenter and below it, by inventory path such as /dc/vm/team-a")
	f.StringToStringVar(&v.tags, "tags", nil, "of the machines in the folder, those that have all these vCenter tags, as category=tag,...")
	f.Lookup("tags").DefValue = ""
	p.CompleteNames(command, "vsphere-server", "vsphereservers."+v1alpha1.GroupName)
}

func (v *vcenter) given() bool { return v.server != "" || v.folder != "" || len(v.tags) > 0 }

// check returns an error if the machines are not clear. selected reports whether there is a selection of Kubernetes objects.
func (v *vcenter) check(selected bool, paths []string) error {
	switch {
	case v.server == "":
		return errors.New("--folder and --tags require --vsphere-server")
	case selected:
		return errors.New("--vsphere-server needs inventory paths or --folder: --all and selectors are for machines of KubeVirt")
	case (v.folder == "") == (len(paths) == 0):
		return errors.New("--vsphere-server needs either inventory paths, such as /dc/vm/team-a/web-1, or --folder")
	case v.folder == "" && len(v.tags) > 0:
		return errors.New("--tags requires --folder")
	}
	for _, path := range append(slices.Clone(paths), v.folder) {
		if path != "" && !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q is no inventory path, such as /dc/vm/team-a", path)
		}
	}
	return nil
}

// ofVCenter returns the machines of a vCenter with those paths, or in the folder.
func (o *adopt) ofVCenter(ctx context.Context, c *cli.Cluster, paths []string, ours []v1alpha1.VirtualMachine) (all []candidate, err error) {
	var listed []machine.Listed
	for _, path := range paths {
		listed = append(listed, machine.Listed{Path: path})
	}
	if o.vcenter.folder != "" {
		if listed, err = o.vcenter.list(ctx, c); err != nil {
			return nil, err
		}
		if len(listed) == 0 {
			fmt.Fprintf(o.ErrOut, "No machines found in %s.\n", o.vcenter.folder)
		}
	}
	for i := range listed {
		machine := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: objectName(listed[i].Path)}}
		machine.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: o.vcenter.server}, InventoryPath: listed[i].Path,
		}
		err := o.vcenter.adoptable(&listed[i], machine, ours)
		if ours = append(ours, *machine); err != nil {
			ours = ours[:len(ours)-1]
		}
		all = append(all, candidate{name: listed[i].Path, as: machine, err: err})
	}
	return all, nil
}

// adoptable returns an error if a machine cannot be adopted as that VirtualMachine, next to ours.
func (v *vcenter) adoptable(m *machine.Listed, as *v1alpha1.VirtualMachine, ours []v1alpha1.VirtualMachine) error {
	if m.Obstacle != "" {
		return skipped{text: m.Obstacle}
	}
	for i := range ours {
		if vm := &ours[i]; v.belongs(m, vm) {
			return skipped{text: "it belongs to VirtualMachine " + vm.Name + " of Sallyport", adopted: true}
		}
	}
	switch {
	case m.Owner != "":
		return skipped{text: "its mark " + machine.OwnerKey + " is of VirtualMachine " + cmp.Or(m.OwnerName, "UNKNOWN") + ". If that is gone, remove the mark: " +
			machine.UnmarkCommand(m.Path)}
	case as.Name == "":
		return fmt.Errorf("its name has no letter or digit of ASCII: create a VirtualMachine with another name and spec.runtime.vsphere.inventoryPath: %s", m.Path)
	case slices.ContainsFunc(ours, func(vm v1alpha1.VirtualMachine) bool { return vm.Name == as.Name }):
		return fmt.Errorf("VirtualMachine %s of Sallyport exists and is another machine: create one with another name and spec.runtime.vsphere.inventoryPath: %s",
			as.Name, m.Path)
	}
	return nil
}

// belongs reports whether a machine is that of a VirtualMachine: by its mark, which an observed machine does not have, or as it is specified.
func (v *vcenter) belongs(m *machine.Listed, vm *v1alpha1.VirtualMachine) bool {
	spec := vm.Spec.Runtime.VSphere
	switch {
	case m.Owner != "" && m.Owner == vm.UID:
		return true
	case spec == nil || spec.ServerRef.Name != v.server:
		return false
	case m.InstanceUUID != "" && (strings.EqualFold(spec.InstanceUUID, m.InstanceUUID) || strings.EqualFold(vm.Status.InstanceID, m.InstanceUUID)):
		return true
	}
	return strings.EqualFold(spec.InventoryPath, m.Path)
}

// notInNames are the characters that cannot be in the name of an object, and those that separate its parts.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// objectName returns the name of the VirtualMachine for a machine, or "". vCenter writes / in a name as %2f.
func objectName(inventoryPath string) string {
	name := path.Base(inventoryPath)
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	name = notInNames.ReplaceAllString(strings.ToLower(name), "-")
	return strings.Trim(name[:min(len(name), 63)], "-")
}

// list reads the machines in the folder from vCenter.
func (v *vcenter) list(ctx context.Context, c *cli.Cluster) ([]machine.Listed, error) {
	vc, err := v.connect(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = vc.Close(ctx) }() // a session that cannot be ended expires when idle
	tags := map[string]v1alpha1.LabelValue{}
	for category, tag := range v.tags {
		tags[category] = v1alpha1.LabelValue(tag)
	}
	listed, err := machine.New(vc).Machines(ctx, strings.TrimRight(v.folder, "/"), tags)
	if err != nil {
		return nil, errors.New(runtime.Message(err))
	}
	return listed, nil
}

// connect returns the vCenter with the credentials in the namespace of the installation.
func (v *vcenter) connect(ctx context.Context, c *cli.Cluster) (*session.Server, error) {
	server := &v1alpha1.VSphereServer{}
	if err := c.Get(ctx, client.ObjectKey{Name: v.server}, server); err != nil {
		return nil, err
	}
	installed, err := c.FindInstallation(ctx, "")
	if err != nil {
		return nil, err
	}
	if installed.Deployment == nil {
		return nil, errors.New("found no Deployment of Sallyport, whose namespace has the credentials of the vCenter")
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: installed.Deployment.Namespace, Name: server.Spec.CredentialsSecretRef.Name}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("--folder logs in to vCenter with Secret %s (without the right to read it, give the inventory paths instead): %w", key, err)
	}
	return session.NewServer(session.Config{
		Name: v.server, URL: server.Spec.URL, CABundle: []byte(server.Spec.Trust.CABundle), Thumbprint: server.Spec.Trust.Thumbprint,
		InstanceUUID: server.Status.InstanceUUID,
		Credentials: func(context.Context) (*url.Userinfo, error) {
			return url.UserPassword(string(secret.Data[v1alpha1.CredentialsUsernameKey]), string(secret.Data[v1alpha1.CredentialsPasswordKey])), nil
		},
	})
}
