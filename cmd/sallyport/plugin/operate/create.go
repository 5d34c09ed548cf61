package operate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

func createCommand(p *cli.Plugin) *cobra.Command {
	command := &cobra.Command{
		Use:   "create",
		Short: "Create a virtual machine",
		Long:  "Creates a VirtualMachine from flags.",
		Example: `  # Show the flags for a virtual machine
  kubectl sallyport create vm --help`,
		RunE: func(command *cobra.Command, _ []string) error {
			return cli.UsageError(command, errors.New("specify what to create: vm"))
		},
	}
	command.AddCommand(createMachineCommand(p))
	return command
}

type createMachine struct {
	*cli.Plugin
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

func createMachineCommand(p *cli.Plugin) *cobra.Command {
	o := &createMachine{Plugin: p}
	command := &cobra.Command{
		Use:     "vm NAME --vsphere-server SERVER --template TEMPLATE",
		Aliases: []string{"svm", "virtualmachine"},
		Short:   "Create a virtual machine from a template in a vCenter",
		Long: "Creates a VirtualMachine from a template in a vCenter. To write a manifest instead, use --dry-run=client -o yaml.\n\n" +
			"Specify vCenter objects by inventory path, such as /dc/vm/templates/ubuntu, and the template by inventory path or by\n" +
			"the name of a VSphereTemplate. spec.tenants of the VSphereServer lists what each namespace may use.\n\n" +
			"The command does not wait until the machine exists. To see its progress, use kubectl sallyport why svm NAME.\n\n" +
			"Exit codes: 0 if the VirtualMachine was created, 1 if not.",
		Example: `  # Create a machine with four processors, 8 GiB of memory and a first disk of 40 GiB
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster/Resources/team-a --datastore /dc/datastore/fast --network /dc/network/team-a \
    --cpu 4 --memory 8Gi --disk 40Gi

  # Use the current release of VSphereTemplate ubuntu in its failure domain a
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template ubuntu --failure-domain a --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a

  # Use a VM storage policy and a host with these vCenter tags
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a \
    --storage-policy encrypted --node-selector zone=b,disk=nvme

  # Write a manifest of a machine with user data for cloud-init from the key user-data of a Secret
  kubectl sallyport create vm web-1 --vsphere-server vc-1 --template /dc/vm/templates/ubuntu --folder /dc/vm/team-a \
    --resource-pool /dc/host/cluster --datastore /dc/datastore/fast --network /dc/network/team-a \
    --user-data-secret web-1 --dry-run=client -o yaml > web-1.yaml`,
		Args: cli.ExactlyOne("NAME"),

		RunE:              func(command *cobra.Command, args []string) error { return o.run(command, args[0]) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(command)
	return command
}

var required = []string{"vsphere-server", "template", "folder", "resource-pool", "network"}

func (o *createMachine) addFlags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.server, "vsphere-server", "", "the VSphereServer of the vCenter (--server is the Kubernetes API server)")
	f.StringVar(&o.template, "template", "", "the template to clone: the name of a VSphereTemplate, or an inventory path that begins with /")
	f.StringVar(&o.failureDomain, "failure-domain", "", "the failure domain of the VSphereTemplate (default: its only failure domain)")
	f.StringVar(&o.folder, "folder", "", "the inventory path of the folder for the machine")
	f.StringVar(&o.resourcePool, "resource-pool", "", "the inventory path of the resource pool, cluster or host that runs the machine")
	f.StringVar(&o.datastore, "datastore", "", "the inventory path of the datastore for the files of the machine (default: a datastore that satisfies --storage-policy)")
	f.StringVar(&o.storagePolicy, "storage-policy", "", "the name of the VM storage policy for the files of the machine (default: the default policy of the datastore)")
	f.StringArrayVar(&o.networks, "network", nil, "the inventory path of the network for a network adapter; repeat for each adapter")
	f.Int32Var(&o.cpu, "cpu", 0, "the number of virtual processors (default: the number of the template)")
	f.StringVar(&o.memory, "memory", "", "the memory size, such as 8Gi (default: the size of the template)")
	f.StringArrayVar(&o.disks, "disk", nil, "the size of a disk, such as 40Gi; repeat for each disk, first disk first (default: the sizes of the template)")
	f.StringVar(&o.hostname, "hostname", "", "the hostname of the guest (default: the name of the machine)")
	f.StringVar(&o.userDataSecret, "user-data-secret", "", "the name of a Secret with user data for cloud-init in the key user-data")
	choice.Flag(command, &o.runPolicy, "run-policy", "", "the run policy: "+strings.Join(runPolicies, ", ")+
		" (default: "+string(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)+")", runPolicies...)
	f.StringVar(&o.onto, "node", "", "the ESXi host for the machine (default: any)")
	o.nodeSelector.addFlag(f, "vCenter tags that the host must have, as category=tag,... (default: none)")
	o.creation.addFlags(command)
	o.CompleteNames(command, "vsphere-server", "vsphereservers."+v1alpha1.GroupName)
	o.CompleteNames(command, "template", "vspheretemplates."+v1alpha1.GroupName)
	o.CompleteNames(command, "user-data-secret", "secrets")
}

func (o *createMachine) run(command *cobra.Command, name string) error {
	spec, err := o.check(command)
	if err != nil {
		return cli.UsageError(command, err)
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	machine := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}, Spec: spec}
	if err := o.create(command.Context(), c, machine); err != nil {
		return err
	}
	return o.printer.PrintObj(machine, o.Raw)
}

// check makes a spec of the command line. The API server validates it, except where its errors would not name the flag.
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
		return spec, fmt.Errorf("required: %s", strings.Join(missing, ", "))
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
		return spec, fmt.Errorf("invalid --cpu %d: must be at least 1", o.cpu)
	case set("cpu"):
		spec.CPU = &o.cpu
	}
	return spec, nil
}

func (o *createMachine) source() (source v1alpha1.VSphereCloneSource, err error) {
	if !strings.HasPrefix(o.template, "/") {
		source.TemplateRef = &v1alpha1.VSphereTemplateReference{Name: o.template, FailureDomain: o.failureDomain}
		return source, nil
	}
	if o.failureDomain != "" {
		return source, fmt.Errorf("--failure-domain requires a VSphereTemplate, but --template %s is an inventory path", o.template)
	}
	source.InventoryPath = v1alpha1.InventoryPath(o.template)
	return source, nil
}

func quantity(flag, value string) (resource.Quantity, error) {
	size, err := resource.ParseQuantity(value)
	if err != nil || size.Sign() <= 0 {
		return size, fmt.Errorf("invalid --%s %q: must be a size, such as 8Gi", flag, value)
	}
	return size, nil
}
