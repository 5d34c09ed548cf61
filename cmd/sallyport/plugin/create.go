package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
)

func (p *plugin) createCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "create",
		Short: "Create a virtual machine",
		Long:  "Creates a VirtualMachine from what its flags say: kubectl sallyport create vm.",
		Example: `  # What is there to say of a machine?
  kubectl sallyport create vm --help`,
		RunE: func(command *cobra.Command, _ []string) error {
			return usage(command, errors.New("create what? There is vm"))
		},
	}
	command.AddCommand(p.createMachineCommand())
	return command
}

// createMachine is the command that creates a VirtualMachine.
type createMachine struct {
	*plugin
	creation
	server, template, failureDomain, folder, resourcePool, datastore, storagePolicy string
	networks, disks                                                                 []string
	cpu                                                                             int32
	memory, runPolicy, hostname, userDataSecret, onto                               string
	nodeSelector                                                                    nodeSelector
}

var runPolicies = []string{
	string(v1alpha1.RunPolicyAlwaysOn), string(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually),
	string(v1alpha1.RunPolicyManual), string(v1alpha1.RunPolicyAlwaysOff),
}

func (p *plugin) createMachineCommand() *cobra.Command {
	o := &createMachine{plugin: p}
	command := &cobra.Command{
		Use:     "vm NAME --vsphere-server SERVER --template TEMPLATE",
		Aliases: []string{"svm", "virtualmachine"},
		Short:   "Create a virtual machine from a template in a vCenter",
		Long: "Create a virtual machine from a template in a vCenter.\n\n" +
			"Creates a VirtualMachine, or with --dry-run=client -o yaml only prints one to go on from. Where things are in the vCenter is\n" +
			"told by inventory path, such as /dc/vm/templates/ubuntu; a template is a path too, or the name of a VSphereTemplate. What a namespace may use is in spec.tenants of the VSphereServer.\n" +
			"The machine is made after the command has ended: kubectl sallyport why svm NAME tells what that waits for.\n\n" +
			"Exit code 1 if it was refused.",
		Example: `  # Four processors, 8 GiB of memory, and a first disk of 40 GiB
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster/Resources/team-a --datastore /dc/datastore/fast --network /dc/network/team-a \
    --cpu 4 --memory 8Gi --disk 40Gi

  # From the release that VSphereTemplate ubuntu has in its failure domain a
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template ubuntu --failure-domain a --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a

  # On files of a VM storage policy, and on a host with these tags in vCenter
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a \
    --storage-policy encrypted --node-selector zone=b,disk=nvme

  # With user data for cloud-init, which is under the key user-data of a Secret. Only shown, to be kept in a file
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a \
    --user-data-secret web-1 --dry-run=client -o yaml > web-1.yaml`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(command, fmt.Errorf("name the machine, once: got %d names", len(args)))
			}
			return nil
		},
		RunE:              func(command *cobra.Command, args []string) error { return o.run(command, args[0]) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(command)
	return command
}

// required are the flags without which no machine can be made.
var required = []string{"vsphere-server", "template", "folder", "resource-pool", "network"}

func (o *createMachine) addFlags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.server, "vsphere-server", "", "the VSphereServer of the vCenter; --server is the API server, as for kubectl")
	f.StringVar(&o.template, "template", "", "the template that the machine is a copy of: the name of a VSphereTemplate, or an inventory path, which begins with /")
	f.StringVar(&o.failureDomain, "failure-domain", "", "the failure domain of the VSphereTemplate (default: the only one that it has)")
	f.StringVar(&o.folder, "folder", "", "the folder to put the machine in, by inventory path")
	f.StringVar(&o.resourcePool, "resource-pool", "", "the resource pool, cluster or host to run it in, by inventory path")
	f.StringVar(&o.datastore, "datastore", "", "the datastore for its files, by inventory path (default: one that satisfies --storage-policy)")
	f.StringVar(&o.storagePolicy, "storage-policy", "", "the VM storage policy of its files, by name (default: the datastore's own)")
	f.StringArrayVar(&o.networks, "network", nil, "the network of its first network adapter, by inventory path; again for each further one")
	f.Int32Var(&o.cpu, "cpu", 0, "how many virtual processors it has (default: as the template)")
	f.StringVar(&o.memory, "memory", "", "how much memory it has, such as 8Gi (default: as the template)")
	f.StringArrayVar(&o.disks, "disk", nil, "how large its first disk is, such as 40Gi; again for each further one (default: as in the template)")
	f.StringVar(&o.hostname, "hostname", "", "what its guest calls itself (default: its name)")
	f.StringVar(&o.userDataSecret, "user-data-secret", "", "the Secret with user data for cloud-init, under the key user-data")
	choice.Flag(command, &o.runPolicy, "run-policy", "", "when it is kept running: "+strings.Join(runPolicies, ", ")+
		" (default: "+string(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)+")", runPolicies...)
	f.StringVar(&o.onto, "node", "", "the ESXi host that it should be on (default: any)")
	o.nodeSelector.addFlag(f, "tags that its host must have, category=tag,... (default: none)")
	f.Lookup("cpu").DefValue = "" // which help does not show
	o.creation.addFlags(command)
	o.completeNames(command, "vsphere-server", "vsphereservers."+v1alpha1.GroupName)
	o.completeNames(command, "template", "vspheretemplates."+v1alpha1.GroupName)
	o.completeNames(command, "user-data-secret", "secrets")
}

// completeNames offers the names of objects of a kind as values of a flag.
func (p *plugin) completeNames(command *cobra.Command, flag, kind string) {
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(flag,
		func(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.names(command.Context(), kind), cobra.ShellCompDirectiveNoFileComp
		})
}

func (o *createMachine) run(command *cobra.Command, name string) error {
	spec, err := o.check(command)
	if err != nil {
		return usage(command, err)
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	machine := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Spec: spec}
	if err := o.create(command.Context(), c, machine); err != nil {
		return err
	}
	return o.printer.PrintObj(machine, o.raw)
}

// check makes a spec of the command line. What one may be like is for the API server to say, but where it would not name the flag.
func (o *createMachine) check(command *cobra.Command) (spec v1alpha1.VirtualMachineSpec, err error) {
	set := command.Flags().Changed
	var missing []string
	for _, flag := range required {
		if !set(flag) {
			missing = append(missing, "--"+flag)
		}
	}
	if !set("datastore") && !set("storage-policy") {
		missing = append(missing, "--datastore or --storage-policy")
	}
	if len(missing) > 0 {
		return spec, fmt.Errorf("a machine needs %s", strings.Join(missing, ", "))
	}
	if err := o.creation.check(); err != nil {
		return spec, err
	}
	source, err := o.source()
	if err != nil {
		return spec, err
	}
	clone := &v1alpha1.VSphereClone{
		Template:      source,
		Folder:        v1alpha1.InventoryPath(o.folder),
		ResourcePool:  v1alpha1.InventoryPath(o.resourcePool),
		Datastore:     v1alpha1.InventoryPath(o.datastore),
		StoragePolicy: o.storagePolicy,
		Hostname:      o.hostname,
	}
	for _, network := range o.networks {
		clone.Networks = append(clone.Networks, v1alpha1.InventoryPath(network))
	}
	for _, disk := range o.disks {
		size, err := quantity("disk", disk)
		if err != nil {
			return spec, err
		}
		clone.Disks = append(clone.Disks, v1alpha1.VSphereCloneDisk{Size: size})
	}
	if set("user-data-secret") {
		clone.CloudInit = &v1alpha1.CloudInit{SecretRef: v1alpha1.CloudInitSecretReference{Name: o.userDataSecret}}
	}
	spec = v1alpha1.VirtualMachineSpec{RunPolicy: v1alpha1.RunPolicy(o.runPolicy), NodeName: o.onto, NodeSelector: o.nodeSelector.labels()}
	spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{ServerRef: v1alpha1.VSphereServerReference{Name: o.server}, Clone: clone}
	if set("memory") {
		size, err := quantity("memory", o.memory)
		if err != nil {
			return spec, err
		}
		spec.Memory = &size
	}
	switch {
	case set("cpu") && o.cpu < 1:
		return spec, fmt.Errorf("--cpu %d: a machine has at least 1 processor", o.cpu)
	case set("cpu"):
		spec.CPU = &o.cpu
	}
	return spec, nil
}

// source is what the machine is a copy of.
func (o *createMachine) source() (source v1alpha1.VSphereCloneSource, err error) {
	if !strings.HasPrefix(o.template, "/") {
		source.TemplateRef = &v1alpha1.VSphereTemplateReference{Name: o.template, FailureDomain: o.failureDomain}
		return source, nil
	}
	if o.failureDomain != "" {
		return source, fmt.Errorf("--failure-domain is for a VSphereTemplate, and --template %s is an inventory path", o.template)
	}
	source.InventoryPath = v1alpha1.InventoryPath(o.template)
	return source, nil
}

// quantity reads the value of a flag that is a size.
func quantity(flag, value string) (resource.Quantity, error) {
	size, err := resource.ParseQuantity(value)
	if err != nil || size.Sign() <= 0 {
		return size, fmt.Errorf("--%s %q is not a size, such as 8Gi", flag, value)
	}
	return size, nil
}
