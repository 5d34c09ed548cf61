package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// tries limits the attempts of a write after conflicts.
const tries = 5

type scaleDown struct {
	*cli.Plugin
	machines []string
	from     int32
	expects  bool // whether from is given
	dryRun   string
}

func scaleDownCommand(p *cli.Plugin) *cobra.Command {
	o := &scaleDown{Plugin: p}
	command := &cobra.Command{
		Use:   "scale-down POOL --vm NAME...",
		Short: "Remove specific members from a pool of virtual machines",
		Long: "Adds members to spec.scaleDownTargets of a VirtualMachinePool and lowers spec.replicas by their number in one write. The\n" +
			"pool then deletes these members, even if they are busy. The command changes nothing if a VM is not a member or is being\n" +
			"deleted. Members that are already in spec.scaleDownTargets do not count again; entries of deleted members are removed.\n\n" +
			"Specify a member as NAME, or as NAME@UID to exclude a later member with the same name.\n\n" +
			"Exit codes: 0 on success, 1 on failure.",
		Example: `  # Remove two members without replacing them
  kubectl sallyport scale-down ci --vm ci-3 --vm ci-7

  # Remove a member only if the pool has five replicas, so that a script can be repeated
  kubectl sallyport scale-down ci --vm ci-3 --from 5`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 1 && len(o.machines) == 0 {
				return cli.UsageError(command, errors.New("--vm is required: specify the members to remove"))
			}
			return cli.ExactlyOne(cli.PoolKind)(command, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			o.expects = command.Flags().Changed("from")
			wanted, err := wantedOf(o.machines)
			if err != nil {
				return cli.UsageError(command, err)
			}
			name, err := nameOf(args[0], cli.PoolKind, "svmpool")
			if err != nil {
				return cli.UsageError(command, err)
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return o.run(command.Context(), c, name, wanted)
		},
		ValidArgsFunction: p.CompleteOne(cli.PoolKind),
	}
	f := command.Flags()
	f.StringArrayVar(&o.machines, "vm", nil, "a member to remove, as NAME or NAME@UID; repeat for each member")
	f.Int32Var(&o.from, "from", 0, "scale down only if the pool has this number of replicas")
	cli.AddDryRun(command, &o.dryRun)
	cli.CompleteFlag(command, "vm", o.completeMembers)
	return command
}

// completeMembers completes --vm with members that are not specified yet.
func (o *scaleDown) completeMembers(ctx context.Context, args []string) (names []string) {
	for _, vm := range o.MetadataOf(ctx, cli.MachineKind) {
		if len(args) > 0 && vm.Labels[v1alpha1.LabelPool] == args[0] && !slices.Contains(o.machines, vm.Name) {
			names = append(names, vm.Name)
		}
	}
	return names
}

// run writes the pool, and retries on a conflict.
func (o *scaleDown) run(ctx context.Context, c *cli.Cluster, name string, wanted []v1alpha1.ScaleDownTarget) (err error) {
	for range tries {
		if err = o.try(ctx, c, name, wanted); !apierrors.IsConflict(err) {
			break
		}
	}
	return err
}

func (o *scaleDown) try(ctx context.Context, c *cli.Cluster, name string, wanted []v1alpha1.ScaleDownTarget) error {
	pool, members, err := readPool(ctx, c, name)
	if err != nil {
		return err
	}
	replicas := ptr.Deref(pool.Spec.Replicas, 0)
	if o.expects && replicas != o.from {
		return fmt.Errorf("VirtualMachinePool %s has %d replicas, not %d as --from requires; nothing was changed", name, replicas, o.from)
	}
	s, err := shrinkOf(pool, members, wanted)
	if err != nil {
		return err
	}
	if len(s.named) > 0 && o.dryRun != cli.DryRunClient {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pool.UID, "resourceVersion": pool.ResourceVersion},
			"spec":     map[string]any{"replicas": s.replicas, "scaleDownTargets": s.targets},
		})
		if err != nil {
			return err
		}
		if err := cli.Writer(c, o.dryRun).Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return err
		}
	}
	fmt.Fprintf(o.Out, "virtualmachinepool.%s/%s %s%s\n", v1alpha1.GroupName, name, s.describe(replicas), cli.DryRunSuffix[o.dryRun])
	return nil
}

func readPool(ctx context.Context, c *cli.Cluster, name string) (*v1alpha1.VirtualMachinePool, []v1alpha1.VirtualMachine, error) {
	pool := &v1alpha1.VirtualMachinePool{}
	if err := c.Get(ctx, c.Key(name), pool); err != nil {
		return nil, nil, err
	}
	if !pool.DeletionTimestamp.IsZero() {
		return nil, nil, fmt.Errorf("VirtualMachinePool %s is being deleted together with its members", name)
	}
	members, err := c.Members(ctx, pool)
	return pool, members, err
}

type shrink struct {
	replicas      int32
	targets       []v1alpha1.ScaleDownTarget
	named, before []string // machines named now and before
}

// shrinkOf adds the wanted members to the targets. Policy pools-scale-down denies the same requests and more; shrinkOf reports all
// invalid names at once.
func shrinkOf(pool *v1alpha1.VirtualMachinePool, members []v1alpha1.VirtualMachine, wanted []v1alpha1.ScaleDownTarget) (shrink, error) {
	s, wrong := shrink{}, []string{}
	for _, entry := range pool.Spec.ScaleDownTargets {
		if slices.ContainsFunc(members, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == entry.UID }) {
			s.targets = append(s.targets, entry)
		}
	}
	for _, target := range wanted {
		i := slices.IndexFunc(members, func(vm v1alpha1.VirtualMachine) bool { return vm.Name == target.Name })
		switch {
		case target.UID != "" && slices.ContainsFunc(pool.Spec.ScaleDownTargets, func(t v1alpha1.ScaleDownTarget) bool { return t.UID == target.UID }):
			s.before = append(s.before, target.Name) // whether that member is gone already or not
			continue
		case i < 0:
			wrong = append(wrong, target.Name+" is not a member")
			continue
		case target.UID != "" && target.UID != members[i].UID:
			wrong = append(wrong, fmt.Sprintf("%s has UID %s, not %s", target.Name, members[i].UID, target.UID))
			continue
		}
		target.UID = members[i].UID
		switch {
		case slices.Contains(s.named, target.Name) || slices.Contains(s.before, target.Name): // twice is once
		case slices.ContainsFunc(s.targets, func(t v1alpha1.ScaleDownTarget) bool { return t.UID == target.UID }):
			s.before = append(s.before, target.Name)
		case !members[i].DeletionTimestamp.IsZero():
			wrong = append(wrong, target.Name+" is already being deleted")
		default:
			s.named, s.targets = append(s.named, target.Name), append(s.targets, target)
		}
	}
	if len(wrong) > 0 {
		return s, fmt.Errorf("VirtualMachinePool %s: %s; nothing was changed; members that can be removed: %s",
			pool.Name, strings.Join(wrong, "; "), eligible(members, s.targets))
	}
	s.replicas = max(0, ptr.Deref(pool.Spec.Replicas, 0)-int32(len(s.named))) // #nosec G115 -- as many as words on a command line
	return s, nil
}

// eligible lists members that can be removed, up to a limit.
func eligible(members []v1alpha1.VirtualMachine, named []v1alpha1.ScaleDownTarget) string {
	const most = 10
	var names []string
	for i := range members {
		is := func(t v1alpha1.ScaleDownTarget) bool { return t.UID == members[i].UID }
		if members[i].DeletionTimestamp.IsZero() && !slices.ContainsFunc(named, is) {
			names = append(names, members[i].Name)
		}
	}
	return cmp.Or(cli.SomeOf(names, most), "none")
}

func (s *shrink) describe(from int32) string {
	before := ""
	if len(s.before) > 0 {
		before = "; already in spec.scaleDownTargets: " + strings.Join(s.before, ", ")
	}
	if len(s.named) == 0 {
		return "unchanged" + before
	}
	return fmt.Sprintf("scaled from %d to %d, removing %s%s", from, s.replicas, strings.Join(s.named, ", "), before)
}

// wantedOf parses the values of --vm.
func wantedOf(values []string) ([]v1alpha1.ScaleDownTarget, error) {
	wanted := make([]v1alpha1.ScaleDownTarget, len(values))
	for i, value := range values {
		argument, uid, with := strings.Cut(value, "@")
		name, err := machineName(argument)
		if err != nil {
			return nil, err
		}
		if name == "" || with && uid == "" {
			return nil, fmt.Errorf("invalid --vm %q: must be NAME or NAME@UID", value)
		}
		wanted[i] = v1alpha1.ScaleDownTarget{Name: name, UID: types.UID(uid)}
	}
	return wanted, nil
}
