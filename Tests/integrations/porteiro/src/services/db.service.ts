// A stand-in of Porteiro's database service: the functions that its controller and the guide's edits call.

import { SupabaseClientFactory } from "@porteiroapp/supabase";

class DatabaseService {
  private supabase: any;

  constructor() {
    this.supabase = SupabaseClientFactory.createServerClient().client;
  }

  async one(query: any): Promise<any> {
    const { data, error } = await query;
    if (error) throw error;
    return data;
  }

  getApartmentByNumber(number: string, buildingId: string) {
    return this.one(this.supabase.from("apartments").select("id, number, building_id").eq("number", number)
      .eq("building_id", buildingId).single());
  }

  getDoormanProfile(id: string) {
    return this.one(this.supabase.from("profiles").select("id, full_name, building_id, user_type").eq("id", id)
      .eq("user_type", "porteiro").single());
  }

  getResidentProfile(id: string) {
    return this.one(this.supabase.from("profiles").select("id, full_name").eq("id", id).eq("user_type", "morador").single());
  }

  async getResidentApartment(profileId: string) {
    const { apartments } = await this.one(this.supabase.from("apartment_residents")
      .select("apartments!inner(id, number, buildings(name))").eq("profile_id", profileId).single());
    return { id: apartments.id, number: apartments.number, building_name: apartments.buildings.name };
  }

  async getResidentsByApartment(apartmentId: string): Promise<any[]> {
    const rows = await this.one(this.supabase.from("apartment_residents").select("profiles!inner(id, full_name)")
      .eq("apartment_id", apartmentId));
    return rows.map(({ profiles }: any) => ({ id: profiles.id, name: profiles.full_name }));
  }

  createIntercomCall(apartmentId: string, initiatorId: string, type = "doorman") {
    return this.one(this.supabase.from("intercom_calls").insert({ apartment_id: apartmentId, initiator_id: initiatorId,
      initiator_type: type, status: "calling" }).select().single());
  }

  createResidentIntercomCall(apartmentId: string, residentId: string) {
    return this.createIntercomCall(apartmentId, residentId, "resident");
  }

  getCallById(id: string) {
    return this.one(this.supabase.from("intercom_calls").select("*").eq("id", id).single());
  }

  updateCall(id: string, change: any) {
    return this.one(this.supabase.from("intercom_calls").update(change).eq("id", id).select().single());
  }

  updateCallStatus(id: string, status: string) {
    return this.updateCall(id, { status });
  }

  addCallParticipant(row: any) {
    return this.one(this.supabase.from("call_participants").insert(row).select().single());
  }

  updateCallParticipant(callId: string, participantId: string, change: any) {
    return this.one(this.supabase.from("call_participants").update(change).eq("call_id", callId)
      .eq("participant_id", participantId).select().single());
  }

  async getCallParticipants(callId: string): Promise<any[]> {
    const rows = await this.one(this.supabase.from("call_participants")
      .select("participant_type, status, profiles(push_token, voip_push_token, notification_enabled)").eq("call_id", callId));
    return rows.map(({ participant_type, status, profiles }: any) => ({ user_type: participant_type, status, ...profiles }));
  }

{{services/db.service.ts:1069-1093}}
}

export default new DatabaseService();
