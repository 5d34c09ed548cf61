package main

import (
	"strings"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/vcsim"
	"sallyport.dev/sallyport/test/env/install"
)

// The template in the vCenter, by its name, the machine that is made from it, and the address that its guest gets.
const ubuntu, shop1, address = "ubuntu", "shop-1", "10.0.0.17"

// createShop has the plugin create the machine on a datastore.
const createShop = "sallyport create vm " + shop1 + " --vsphere-server vc-1 --template " + inventory + ubuntu +
	" --folder /DC0/vm --resource-pool /DC0/host/DC0_C0 --network /DC0/network/DC0_DVPG0 --cpu 2 --memory 4Gi --disk 2Gi" +
	" --user-data-secret shop-1 --datastore /DC0/datastore/"

func (s *show) make() {
	s.chapter("9. A machine that is made from a template",
		"What cloud-init in its guest is given is in a Secret, which Sallyport may read in this namespace once an administrator says so.")
	s.kubectl("create role cloud-init --verb=get --resource=secrets")
	s.kubectl("create rolebinding cloud-init --role=cloud-init --serviceaccount=" + install.Namespace + ":" + install.Release)
	s.kubectl("create secret generic shop-1 --from-literal=user-data=#cloud-config")
	s.tell("A datastore that team-a may not use is refused, with those that it may:")
	s.denied(createShop+"gold", "", "DatastoreNotAllowed", "/DC0/datastore/LocalDS_0")
	s.kubectl(createShop+"LocalDS_0", "created")
	s.kubectl("wait svm/shop-1 --for=condition=Ready --timeout=2m")
	shop := s.madeFor(shop1)
	s.vcenter.SetGuest(shop, vcsim.Guest{Hostname: shop1, Address: address})
	s.kubectl("wait svm/shop-1 --for=jsonpath={.status.addresses[0]}=" + address + " --timeout=2m")
	s.kubectl("get svm shop-1 -o wide", "Running", address)
	s.tell("More processors take a restart, because this template does not let them be added while a machine is on:")
	s.kubectl(`patch svm shop-1 --type=merge --patch={"spec":{"cpu":4}}`)
	s.kubectl("wait svm/shop-1 --for=condition=RestartRequired --timeout=2m")
	s.kubectl("sallyport restart shop-1 --wait", "Completed, Succeeded")
	s.vCenterHas(shop, 4)
	s.tell("The machine goes with its object:")
	s.kubectl("delete svm shop-1 --timeout=2m")
	s.vCenterHas(shop, 0)
}

// madeFor gives where the machine of a VirtualMachine is that was made, by its inventory path.
func (s *show) madeFor(name string) string {
	for _, path := range s.vcenter.Machines() {
		if strings.HasPrefix(path, inventory+team+"-"+name+"-") {
			return path
		}
	}
	s.fail("vCenter has no machine that was made for %s", name)
	return inventory + ubuntu
}

// vCenterHas shows how many processors a machine has, or that there is none.
func (s *show) vCenterHas(path string, processors int32) {
	if s.wrong != "" {
		return
	}
	there := s.vcenter.State(path).InstanceUUID != ""
	if !there {
		s.note("vCenter says: there is no machine at %s", path)
	} else {
		s.note("vCenter says: %s has %d processors", path, s.vcenter.Hardware(path).CPUs)
	}
	if there != (processors > 0) || there && s.vcenter.Hardware(path).CPUs != processors {
		s.fail("wanted are %d processors", processors)
	}
}
