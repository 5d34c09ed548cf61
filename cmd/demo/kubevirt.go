package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/virt"
)

// kubeVirt is KubeVirt as a place: its real virt-api and virt-controller, and an agent that plays the nodes.
type kubeVirt struct {
	*virt.Cluster
	ctx context.Context
}

// prepareKubeVirt builds KubeVirt, before the control plane starts.
func (s *stage) prepareKubeVirt(ctx context.Context, p terminal.Printer) error {
	p.Say("Preparing virt-api and virt-controller of KubeVirt, whose first build takes about 10 minutes ...")
	folder := s.path("kubevirt")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	kubevirt, err := virt.Prepare(ctx, folder, func(format string, args ...any) { p.Say("  "+format, args...) })
	s.place = &kubeVirt{kubevirt, ctx}
	return err
}

// startKubeVirt starts KubeVirt with the machines.
func (s *stage) startKubeVirt(ctx context.Context, p terminal.Printer) error {
	p.Say("Starting KubeVirt with three machines, %s off, %s and %s on; an agent plays its nodes ...", web1, web2, db1)
	k := s.place.(*kubeVirt)
	s.onClose(func() error { k.Stop(); return nil })
	if err := k.Install(ctx, s.plane); err != nil {
		return fmt.Errorf("%w\n%s", err, k.Logs())
	}
	if err := k.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}); err != nil {
		return err
	}
	for _, name := range []string{web1, web2, db1} {
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
		vm.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
		if name == web1 {
			vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
		}
		vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi"))}
		if err := k.Create(ctx, vm); err != nil {
			return err
		}
	}
	return nil
}

func (*kubeVirt) name() string { return "KubeVirt" }

func (*kubeVirt) manifest(machine, runPolicy string) string {
	return manifest(machine, runPolicy, "{kubevirt: {name: "+machine+"}}")
}

func (*kubeVirt) key(machine string) types.NamespacedName {
	return types.NamespacedName{Namespace: team, Name: machine}
}

func (k *kubeVirt) state(machine string) (is state) {
	vm, vmi := &virtv1.VirtualMachine{}, &virtv1.VirtualMachineInstance{}
	if err := k.Get(k.ctx, k.key(machine), vm); err != nil {
		return state{word: err.Error()}
	}
	is = state{word: string(vm.Status.PrintableStatus), power: v1alpha1.PowerStopped, powerOns: k.Agent.Boots(k.key(machine))}
	if k.Get(k.ctx, k.key(machine), vmi) != nil || vmi.IsFinal() {
		return is
	}
	moves := vmi.Status.MigrationState != nil && !vmi.Status.MigrationState.Completed
	is.busy = !vmi.DeletionTimestamp.IsZero() || vmi.Status.Phase != virtv1.Running || moves
	if vmi.Status.Phase == virtv1.Running {
		is.power, is.host = v1alpha1.PowerRunning, vmi.Status.NodeName
	}
	return is
}

func (k *kubeVirt) hold(machine string, kind runtime.TaskKind) (release func()) {
	return k.Agent.Hold(k.key(machine), kind)
}

func (k *kubeVirt) ignoreShutdown(machine string) { k.Agent.Ignore(k.key(machine), true) }

func (k *kubeVirt) shutDown(machine string) {
	_ = k.Agent.Edit(k.ctx, k.key(machine), func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.Phase = virtv1.Succeeded })
}

func (*kubeVirt) home() string  { return virt.Nodes[0] }
func (*kubeVirt) other() string { return virt.Nodes[1] }

// createdOnKubeVirt has Sallyport create a machine.
const createdOnKubeVirt = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: shop-1}
spec:
  cpu: 2
  memory: 64Mi
  runtime:
    kubevirt:
      create:
        disks: [{name: root, containerDisk: quay.io/containerdisks/debian:12}]
`

func (s *show) makeOnKubeVirt() {
	s.chapter("Create a machine", "Sallyport creates a VirtualMachine of KubeVirt for this one, and deletes it with it.")
	s.create(createdOnKubeVirt, "created")
	s.kubectl("wait svm/shop-1 --for=condition=Ready --timeout=2m")
	s.kubectl("get svm shop-1 -o wide", "Running", virt.Nodes[0])
	s.kubectl("get virtualmachines.kubevirt.io shop-1 -o custom-columns=NAME:.metadata.name,STRATEGY:.spec.runStrategy,STATUS:.status.printableStatus",
		"Manual", "Running")
	s.kubectl("sallyport migrate shop-1 --to "+virt.Nodes[1]+" --wait", "Completed, Succeeded")
	s.kubectl("get svm shop-1 -o wide", "Running", virt.Nodes[1])
	s.kubectl("delete svm shop-1 --timeout=2m")
	s.kubectl("get virtualmachines.kubevirt.io", db1, web1, web2)
	if is := s.place.state("shop-1"); is.power != "" {
		s.fail("VirtualMachine shop-1 of KubeVirt still exists: %+v", is)
	}
}

// borrowed is a manifest with which bob adopts a machine that he may not change.
const borrowed = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: mine}
spec: {runtime: {kubevirt: {name: db-1}}}
`

func (s *show) strangerToKubeVirt() {
	s.chapter("A user without rights on a machine", "bob may write VirtualMachines of Sallyport, but not those of KubeVirt, so he cannot adopt db-1.")
	s.kubectl("create role vms --verb=create,get,list --resource=virtualmachines.sallyport.dev")
	s.kubectl("create rolebinding bob --role=vms --user=bob")
	s.denied("create --as bob -f -", borrowed, "[machines-access/KubeVirtNotAllowed]", "kubectl auth can-i update virtualmachines.kubevirt.io/db-1")
}

func (s *show) guardsOfKubeVirt() {
	s.chapter("Guards for KubeVirt's own objects",
		"Two policies, which are off as shipped, protect machines that other clients change, and KubeVirt itself.")
	s.denied("delete virtualmachines.kubevirt.io "+db1, "", "[kubevirt-machines/MachineRunning]")
	s.denied("delete crd virtualmachines.kubevirt.io", "", "[kubevirt-definitions/MachinesExist]")
}
